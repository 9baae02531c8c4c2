package bootstrappolicy

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/rbac"
)

// policy is an rbac.Policy in memory.
type policy struct {
	roles               []*rbacv1.Role
	clusterRoles        []*rbacv1.ClusterRole
	roleBindings        []*rbacv1.RoleBinding
	clusterRoleBindings []*rbacv1.ClusterRoleBinding
}

func (p policy) Role(namespace, name string) (*rbacv1.Role, bool) {
	for _, r := range p.roles {
		if r.Namespace == namespace && r.Name == name {
			return r, true
		}
	}
	return nil, false
}

func (p policy) ClusterRole(name string) (*rbacv1.ClusterRole, bool) {
	for _, r := range p.clusterRoles {
		if r.Name == name {
			return r, true
		}
	}
	return nil, false
}

func (p policy) RoleBindings(namespace string) []*rbacv1.RoleBinding {
	return slices.DeleteFunc(slices.Clone(p.roleBindings), func(b *rbacv1.RoleBinding) bool { return b.Namespace != namespace })
}

func (p policy) ClusterRoleBindings() []*rbacv1.ClusterRoleBinding { return p.clusterRoleBindings }

func defaults() policy {
	return policy{clusterRoles: DefaultRoles(), clusterRoleBindings: DefaultBindings()}
}

func bound(namespace, kind, role string, subjects ...rbacv1.Subject) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role},
		Subjects:   subjects,
	}
}

func request(verb, group, resource, namespace, name string) authorizer.AttributesRecord {
	resource, subresource, _ := strings.Cut(resource, "/")
	return authorizer.AttributesRecord{
		ResourceRequest: true, Verb: verb, APIGroup: group, Resource: resource, Subresource: subresource, Namespace: namespace, Name: name,
	}
}

func path(verb, path string) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{Verb: verb, Path: path}
}

func TestDefaultRoles(t *testing.T) {
	p := defaults()
	for _, role := range []string{Admin, Edit, View} {
		p.roleBindings = append(p.roleBindings, bound("a", "ClusterRole", role, rbacv1.Subject{Kind: "User", Name: role}))
	}
	everybody := []string{user.AllAuthenticated}
	for _, test := range []struct {
		user    string
		request authorizer.AttributesRecord
		want    bool
	}{
		{View, request("list", "", "pods", "a", ""), true},
		{View, request("get", "", "secrets", "a", "x"), false},
		{View, request("get", rbacv1.GroupName, "roles", "a", "x"), false},
		{View, request("delete", "", "pods", "a", "x"), false},
		{View, request("list", "events.k8s.io", "events", "a", ""), true},
		{View, request("list", "", "podtemplates", "a", ""), true},
		{View, request("create", "events.k8s.io", "events", "a", ""), false},
		{Edit, request("create", "events.k8s.io", "events", "a", ""), true},
		{Edit, request("create", "", "podtemplates", "a", ""), true},
		{Edit, request("create", "", "bindings", "a", ""), false},
		{Edit, request("delete", "apps", "deployments", "a", "x"), true},
		{Edit, request("get", "apps", "deployments", "a", "x"), true}, // through view
		{Edit, request("get", "", "secrets", "a", "x"), true},
		{Edit, request("create", "", "serviceaccounts/token", "a", "x"), true},
		{Edit, request("update", "", "endpoints", "a", "x"), false},
		{Edit, request("create", rbacv1.GroupName, "rolebindings", "a", ""), false},
		{Edit, request("delete", "", "pods", "b", "x"), false},
		{Admin, request("create", rbacv1.GroupName, "rolebindings", "a", ""), true},
		{Admin, request("delete", "apps", "deployments", "a", "x"), true}, // through edit
		{Admin, request("list", "", "pods", "a", ""), true},               // through view
		{Admin, request("update", "", "namespaces", "a", "a"), false},
		{Admin, request("create", "", "resourcequotas", "a", ""), false},
		{"anybody", path("get", "/apis/apps/v1"), true},
		{"anybody", path("get", "/metrics"), false},
		{"anybody", request("create", "authorization.k8s.io", "selfsubjectaccessreviews", "", ""), true},
		{"anybody", request("create", "authorization.k8s.io", "subjectaccessreviews", "", ""), false},
		{Collector, request("patch", "example.com", "widgets", "a", "x"), true},
		{Collector, request("delete", "", "secrets", "a", "x"), true},
		{Collector, request("create", "", "events", "a", ""), true},
		{Collector, request("create", "", "pods", "a", ""), false},
		{Collector, request("update", "", "pods", "a", "x"), false},
		{Collector, request("deletecollection", "", "pods", "a", ""), false},
		{Collector, request("escalate", rbacv1.GroupName, "clusterroles", "", "x"), false},
		{Collector, request("impersonate", "", "users", "", "root"), false},
		{NamespaceController, request("update", "", "namespaces/finalize", "", "a"), true},
		{NamespaceController, request("update", "", "namespaces", "", "a"), false},
		{NamespaceController, request("deletecollection", "", "pods", "a", ""), true},
		{NamespaceController, request("patch", "", "pods", "a", "x"), false},
		{ProtectionController, request("patch", "", "persistentvolumeclaims", "a", "x"), true},
		{ProtectionController, request("patch", "", "persistentvolumeclaims/status", "a", "x"), false},
		{ProtectionController, request("update", "", "persistentvolumeclaims", "a", "x"), false},
		{ProtectionController, request("delete", "", "persistentvolumes", "", "x"), false},
		{ProtectionController, request("list", "", "pods", "", ""), true},
		{ProtectionController, request("patch", "", "pods", "a", "x"), false},
		{ProtectionController, request("get", "", "secrets", "a", "x"), false},
		{LeaderElection, request("update", "coordination.k8s.io", "leases", "kube-system", ControllersLease), true},
		{LeaderElection, request("update", "coordination.k8s.io", "leases", "kube-node-lease", "node-1"), false},
		{LeaderElection, request("get", "", "namespaces", "kube-system", "kube-system"), true},
		{LeaderElection, request("get", "", "pods", "a", "x"), false},
	} {
		test.request.User = &user.DefaultInfo{Name: test.user, Groups: everybody}
		if got, _ := rbac.Decide(p, test.request); got != test.want {
			t.Errorf("%s, %+v: %t", test.user, test.request, got)
		}
	}
}

// The default roles are aggregated: aggregating them again changes nothing.
func TestAggregate(t *testing.T) {
	roles := DefaultRoles()
	for _, r := range roles {
		if again := rbac.Aggregate(r, roles); len(r.Rules) == 0 || len(again) != len(r.Rules) {
			t.Errorf("%s: %d rules, again %d", r.Name, len(r.Rules), len(again))
		}
	}
	widgets := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets", Labels: map[string]string{"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
		Rules:      []rbacv1.PolicyRule{rule("example.com", reading(), "widgets")},
	}
	view := roles[slices.IndexFunc(roles, func(r *rbacv1.ClusterRole) bool { return r.Name == View })]
	got := rbac.Aggregate(view, append(slices.Clone(roles), widgets, widgets))
	if len(got) != len(view.Rules)+1 || !slices.ContainsFunc(got, func(r rbacv1.PolicyRule) bool { return r.APIGroups[0] == "example.com" }) {
		t.Errorf("%d rules of %d", len(got), len(view.Rules))
	}
}

func TestReconcileRole(t *testing.T) {
	wanted := role("x", rule("", []string{"get", "list"}, "pods"))
	for name, test := range map[string]struct {
		existing *rbacv1.ClusterRole
		want     string // rules, or "" for nothing to do
	}{
		"equal":   {role("x", rule("", []string{"get", "list"}, "pods")), ""},
		"larger":  {role("x", rule("", []string{"*"}, "*")), ""},
		"smaller": {role("x", rule("", []string{"get"}, "pods")), `{APIGroups:[""], Resources:["pods"], Verbs:["get"]}{APIGroups:[""], Resources:["pods"], Verbs:["list"]}`},
		"kept": {&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{
			Annotations: map[string]string{rbacv1.AutoUpdateAnnotationKey: "false"},
		}}, ""},
		"without its label": {
			&rbacv1.ClusterRole{Rules: []rbacv1.PolicyRule{rule("", []string{"get", "list", "watch"}, "pods")}},
			`{APIGroups:[""], Resources:["pods"], Verbs:["get" "list" "watch"]}`,
		},
	} {
		next, changed := reconcileRole(test.existing, wanted)
		var words strings.Builder
		if changed {
			for _, r := range next.Rules {
				words.WriteString(rbac.Compact(r))
			}
			if next.Labels[bootstrapLabel] == "" {
				t.Errorf("%s: no label", name)
			}
		}
		if words.String() != test.want {
			t.Errorf("%s: %s", name, words.String())
		}
	}
	view := aggregated(View, "")
	view.AggregationRule = nil
	if next, changed := reconcileRole(view, aggregated(View, "")); !changed || next.AggregationRule == nil {
		t.Error("the aggregation rule is not restored")
	}
}

func TestReconcileBinding(t *testing.T) {
	wanted := binding(View, rbacv1.GroupKind, "readers")
	if _, changed, _ := reconcileBinding(binding(View, rbacv1.GroupKind, "readers"), wanted); changed {
		t.Error("an equal one is changed")
	}
	next, changed, replace := reconcileBinding(binding(View, rbacv1.UserKind, "ann"), wanted)
	if !changed || replace || len(next.Subjects) != 2 {
		t.Errorf("%v %t %t", next, changed, replace)
	}
	if _, changed, replace = reconcileBinding(binding(Edit, rbacv1.GroupKind, "readers"), wanted); !changed || !replace {
		t.Error("another role stays bound")
	}
	stays := binding(Edit, rbacv1.GroupKind, "x")
	stays.Annotations[rbacv1.AutoUpdateAnnotationKey] = "false"
	if _, changed, _ = reconcileBinding(stays, wanted); changed {
		t.Error("one that is to stay is changed")
	}
}
