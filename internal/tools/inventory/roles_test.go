package inventory_test

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// TestRolesOfServiceAccount: a service account has the rules of its bindings in the namespace and in the cluster.
func TestRolesOfServiceAccount(t *testing.T) {
	rule := func(resource string) []rbacv1.PolicyRule {
		return []rbacv1.PolicyRule{{Verbs: []string{"update"}, APIGroups: []string{"acme.io"}, Resources: []string{resource}}}
	}
	account := func(namespace, name string) []rbacv1.Subject {
		return []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: name}}
	}
	group := func(name string) []rbacv1.Subject { return []rbacv1.Subject{{Kind: "Group", Name: name}} }
	r := &inventory.Roles{
		ClusterRoles: map[string][]rbacv1.PolicyRule{"everywhere": rule("a"), "shared": rule("b"), "all": rule("c")},
		Roles:        map[types.NamespacedName][]rbacv1.PolicyRule{{Namespace: "shop", Name: "local"}: rule("d")},
		ClusterBindings: []rbacv1.ClusterRoleBinding{
			{RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "everywhere"}, Subjects: account("ops", "sa")},
			{RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "all"}, Subjects: group("system:serviceaccounts:ops")},
		},
		Bindings: []rbacv1.RoleBinding{
			{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "x"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "shared"}, Subjects: account("ops", "sa")},
			{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "y"}, RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "local"}, Subjects: account("ops", "sa")},
			{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "z"}, RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "local"}, Subjects: account("", "sa")},
		},
	}
	for _, test := range []struct {
		account   types.NamespacedName
		namespace string
		want      []string
	}{
		{types.NamespacedName{Namespace: "ops", Name: "sa"}, "shop", []string{"a", "b", "c", "d"}},
		{types.NamespacedName{Namespace: "ops", Name: "sa"}, "other", []string{"a", "c"}},
		{types.NamespacedName{Namespace: "ops", Name: "sa"}, "", []string{"a", "c"}},
		{types.NamespacedName{Namespace: "ops", Name: "another"}, "shop", []string{"c"}},
		{types.NamespacedName{Namespace: "shop", Name: "sa"}, "shop", []string{"d"}}, // of the binding's own namespace
		{types.NamespacedName{Namespace: "web", Name: "sa"}, "shop", nil},
	} {
		var got []string
		for _, rule := range r.Of(test.account, test.namespace) {
			got = append(got, rule.Resources...)
		}
		slices.Sort(got)
		if !slices.Equal(got, test.want) {
			t.Errorf("%s in %q: %v, want %v", test.account, test.namespace, got, test.want)
		}
	}
}
