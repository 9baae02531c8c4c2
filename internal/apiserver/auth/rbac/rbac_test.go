package rbac

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/coppice-dev/coppice/internal/testing/accesspolicy"
)

func rule(group string, verbs []string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: verbs, APIGroups: []string{group}, Resources: resources}
}

func TestRuleAllowsItsVerbsResourcesAndPaths(t *testing.T) {
	pods := rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}
	named := rbacv1.PolicyRule{Verbs: []string{"*"}, APIGroups: []string{"apps"}, Resources: []string{"deployments"}, ResourceNames: []string{"a", "b"}}
	logs := rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{"*"}, Resources: []string{"pods/log", "*/scale"}}
	all := Everything()[0]
	paths := rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/version", "/apis/*"}}
	for name, test := range map[string]struct {
		rule    rbacv1.PolicyRule
		request authorizer.AttributesRecord
		want    bool
	}{
		"as it says":                      {pods, accesspolicy.Request("get", "", "pods", "a", "x"), true},
		"another verb":                    {pods, accesspolicy.Request("list", "", "pods", "a", ""), false},
		"another group":                   {pods, accesspolicy.Request("get", "metrics", "pods", "a", "x"), false},
		"another resource":                {pods, accesspolicy.Request("get", "", "secrets", "a", "x"), false},
		"a subresource is another":        {pods, accesspolicy.Request("get", "", "pods/log", "a", "x"), false},
		"a path":                          {pods, accesspolicy.Path("get", "/pods"), false},
		"named":                           {named, accesspolicy.Request("delete", "apps", "deployments", "a", "b"), true},
		"another name":                    {named, accesspolicy.Request("delete", "apps", "deployments", "a", "c"), false},
		"no name":                         {named, accesspolicy.Request("create", "apps", "deployments", "a", ""), false},
		"subresource":                     {logs, accesspolicy.Request("get", "", "pods/log", "a", "x"), true},
		"its resource":                    {logs, accesspolicy.Request("get", "", "pods", "a", "x"), false},
		"subresource of any":              {logs, accesspolicy.Request("get", "apps", "deployments/scale", "a", "x"), true},
		"another subresource":             {logs, accesspolicy.Request("get", "apps", "deployments/status", "a", "x"), false},
		"everything has its subresources": {all, accesspolicy.Request("update", "apps", "deployments/finalizers", "a", "x"), true},
		"everything there is but paths":   {all, accesspolicy.Path("get", "/metrics"), false},
		"path":                            {paths, accesspolicy.Path("get", "/version"), true},
		"path below":                      {paths, accesspolicy.Path("get", "/version/x"), false},
		"path pattern":                    {paths, accesspolicy.Path("get", "/apis/apps/v1"), true},
		"path pattern, not below":         {paths, accesspolicy.Path("get", "/apisx"), false},
		"path, another verb":              {paths, accesspolicy.Path("post", "/version"), false},
		"path, a resource":                {paths, accesspolicy.Request("get", "", "pods", "", ""), false},
	} {
		if got := Allows(&test.rule, test.request); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestBindingsGrantTheirRoles(t *testing.T) {
	read := []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}}
	p := accesspolicy.Policy{
		ClusterRoles: []*rbacv1.ClusterRole{{ObjectMeta: metav1.ObjectMeta{Name: "reader"}, Rules: read}},
		Roles:        []*rbacv1.Role{{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "local"}, Rules: read}},
		Bindings: []*rbacv1.RoleBinding{
			accesspolicy.Bind("a", "ClusterRole", "reader", rbacv1.Subject{Kind: "User", Name: "ann"}, rbacv1.Subject{Kind: "ServiceAccount", Name: "robot", Namespace: "b"}, rbacv1.Subject{Kind: "ServiceAccount", Name: "near"}),
			accesspolicy.Bind("a", "Role", "local", rbacv1.Subject{Kind: "Group", Name: "team"}),
			accesspolicy.Bind("b", "Role", "local", rbacv1.Subject{Kind: "User", Name: "bob"}),
			accesspolicy.Bind("b", "ClusterRole", "missing", rbacv1.Subject{Kind: "User", Name: "bob"}),
		},
		ClusterBindings: []*rbacv1.ClusterRoleBinding{
			{RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "reader"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "root"}}},
			{RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "local"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "eve"}}},
		},
	}
	for name, test := range map[string]struct {
		user      user.DefaultInfo
		namespace string
		want      bool
	}{
		"a user in the namespace":               {user.DefaultInfo{Name: "ann"}, "a", true},
		"a user in another":                     {user.DefaultInfo{Name: "ann"}, "b", false},
		"a user everywhere":                     {user.DefaultInfo{Name: "ann"}, "", false},
		"a group":                               {user.DefaultInfo{Name: "x", Groups: []string{"team"}}, "a", true},
		"a user called like the group":          {user.DefaultInfo{Name: "team"}, "a", false},
		"a service account":                     {user.DefaultInfo{Name: "system:serviceaccount:b:robot"}, "a", true},
		"its namesake":                          {user.DefaultInfo{Name: "system:serviceaccount:a:robot"}, "a", false},
		"a service account of the binding's":    {user.DefaultInfo{Name: "system:serviceaccount:a:near"}, "a", true},
		"a role of another namespace, or none":  {user.DefaultInfo{Name: "bob"}, "b", false},
		"cluster-wide":                          {user.DefaultInfo{Name: "root"}, "", true},
		"cluster-wide is every namespace":       {user.DefaultInfo{Name: "root"}, "zzz", true},
		"a Role cannot be bound for everywhere": {user.DefaultInfo{Name: "eve"}, "a", false},
		"nobody":                                {user.DefaultInfo{}, "a", false},
	} {
		r := accesspolicy.Request("get", "", "pods", test.namespace, "x")
		r.User = &test.user
		if got, reason := Decide(p, r); got != test.want || got != (reason != "") {
			t.Errorf("%s: %t %q", name, got, reason)
		}
	}
}

func TestRulesBeyondTheRightsOfAUserAreMissing(t *testing.T) {
	p := accesspolicy.Policy{
		ClusterRoles: []*rbacv1.ClusterRole{
			{ObjectMeta: metav1.ObjectMeta{Name: "edit"}, Rules: []rbacv1.PolicyRule{rule("", []string{"get", "list", "create", "delete"}, "pods", "secrets")}},
			{ObjectMeta: metav1.ObjectMeta{Name: "cluster-admin"}, Rules: Everything()},
		},
		Bindings: []*rbacv1.RoleBinding{accesspolicy.Bind("a", "ClusterRole", "edit", rbacv1.Subject{Kind: "User", Name: "ann"})},
		ClusterBindings: []*rbacv1.ClusterRoleBinding{{
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects: []rbacv1.Subject{{Kind: "Group", Name: user.SystemPrivilegedGroup}},
		}},
	}
	ann := &user.DefaultInfo{Name: "ann"}
	rules := []rbacv1.PolicyRule{
		rule("", []string{"get", "create"}, "pods", "nodes"),
		rule("rbac.authorization.k8s.io", []string{"get"}, "roles"),
	}
	var got []string
	for _, m := range Missing(p, ann, "a", rules) {
		got = append(got, Compact(m))
	}
	want := []string{
		`{APIGroups:[""], Resources:["nodes"], Verbs:["get" "create"]}`,
		`{APIGroups:["rbac.authorization.k8s.io"], Resources:["roles"], Verbs:["get"]}`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if all := Missing(p, ann, "b", rules[:1]); len(all) != 2 {
		t.Errorf("elsewhere: %v", all)
	}
	if none := Missing(p, &user.DefaultInfo{Name: "x", Groups: []string{user.SystemPrivilegedGroup}}, "", Everything()); none != nil {
		t.Errorf("the administrators' group: %v", none)
	}
}
