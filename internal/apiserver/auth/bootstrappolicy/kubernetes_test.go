package bootstrappolicy

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/rbac"
	"github.com/coppice-dev/coppice/internal/testing/accesspolicy"
)

// Each role exists once, has the metadata for its completion, and binds existing roles of its kind.
func TestKubernetesRoles(t *testing.T) {
	all := kubernetesRoles()
	roles := map[string]bool{}
	for _, r := range all.ClusterRoles {
		if roles["ClusterRole "+r.Name] || r.Annotations[rbacv1.AutoUpdateAnnotationKey] != "true" || r.Labels[bootstrapLabel] == "" {
			t.Errorf("ClusterRole %s: %v", r.Name, r.ObjectMeta)
		}
		roles["ClusterRole "+r.Name] = true
	}
	for _, r := range all.Roles {
		if key := "Role " + r.Namespace + "/" + r.Name; roles[key] || r.Annotations[rbacv1.AutoUpdateAnnotationKey] != "true" {
			t.Errorf("%s: %v", key, r.ObjectMeta)
		} else {
			roles[key] = true
		}
	}
	for _, b := range all.ClusterRoleBindings {
		if !roles["ClusterRole "+b.RoleRef.Name] || len(b.Subjects) == 0 {
			t.Errorf("ClusterRoleBinding %s: %v to %v", b.Name, b.RoleRef, b.Subjects)
		}
	}
	for _, b := range all.RoleBindings {
		if !roles["Role "+b.Namespace+"/"+b.RoleRef.Name] || len(b.Subjects) == 0 {
			t.Errorf("RoleBinding %s: %v to %v", b.Name, b.RoleRef, b.Subjects)
		}
	}
	if len(all.ClusterRoles) != 72 || len(all.ClusterRoleBindings) != 53 || len(all.Roles) != 7 || len(all.RoleBindings) != 7 {
		t.Errorf("%d ClusterRoles, %d bindings, %d Roles, %d bindings", len(all.ClusterRoles), len(all.ClusterRoleBindings), len(all.Roles), len(all.RoleBindings))
	}
}

// An error in the text names its line.
func TestParsePolicy(t *testing.T) {
	for _, text := range []string{
		"Role x", "ClusterRole a/x", "ClusterRole", "Binding x", "  get core pods", "ClusterRole x\n  get", "ClusterRole x\n  get core",
		"ClusterRole x\n  get core pods a b", "ClusterRole x\n  bound to Robot x", "ClusterRole x\n  bound by x to Robot x",
	} {
		if objects, err := parsePolicy(text); err == nil || !strings.HasPrefix(err.Error(), "line ") {
			t.Errorf("%q: %v %v", text, objects, err)
		}
	}
}

// Controllers of Kubernetes act as service accounts, the scheduler as a user. The users of our own components,
// and the nodes, get only the roles of Kubernetes that every user has.
func TestSubjectsOfKubernetesRoles(t *testing.T) {
	all := kubernetesRoles()
	p := accesspolicy.Policy{Roles: all.Roles, Bindings: all.RoleBindings, ClusterRoles: all.ClusterRoles, ClusterBindings: all.ClusterRoleBindings}
	account := func(name string) user.Info { return serviceaccount.UserInfo("kube-system", name, "") }
	for _, test := range []struct {
		user    user.Info
		request authorizer.AttributesRecord
		want    bool
	}{
		{account("job-controller"), accesspolicy.Request("create", "", "pods", "a", ""), true},
		{account("job-controller"), accesspolicy.Request("list", "", "secrets", "a", ""), false},
		{account("other"), accesspolicy.Request("create", "", "pods", "a", ""), false},
		{&user.DefaultInfo{Name: user.KubeScheduler}, accesspolicy.Request("create", "", "pods/binding", "a", "x"), true},
		{&user.DefaultInfo{Name: user.KubeScheduler}, accesspolicy.Request("get", "", "configmaps", "kube-system", "extension-apiserver-authentication"), true},
		{&user.DefaultInfo{Name: user.KubeScheduler}, accesspolicy.Request("get", "", "configmaps", "kube-system", "x"), false},
		{&user.DefaultInfo{Name: user.KubeScheduler}, accesspolicy.Request("update", "coordination.k8s.io", "leases", "kube-system", "x"), true},
		{&user.DefaultInfo{Name: user.KubeScheduler}, accesspolicy.Request("update", "coordination.k8s.io", "leases", "a", "x"), false},
		{account("token-cleaner"), accesspolicy.Request("delete", "", "secrets", "kube-system", "x"), true},
		{account("token-cleaner"), accesspolicy.Request("delete", "", "secrets", "a", "x"), false},
	} {
		test.request.User = test.user
		if got, _ := rbac.Decide(p, test.request); got != test.want {
			t.Errorf("%s, %+v: %t", test.user.GetName(), test.request, got)
		}
	}
	subjects := []user.Info{&user.DefaultInfo{Name: NodeUserPrefix + "a", Groups: []string{user.NodesGroup}}}
	for _, name := range Components() {
		subjects = append(subjects, &user.DefaultInfo{Name: name})
	}
	for _, u := range subjects {
		for grant := range rbac.Grants(p, u, "kube-system") {
			t.Errorf("%s has %s by %s", u.GetName(), rbac.Compact(grant.Rule), grant.By())
		}
	}
}
