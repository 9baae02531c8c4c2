package rbac

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// policy is a Policy in memory.
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

func rule(group string, verbs []string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: verbs, APIGroups: []string{group}, Resources: resources}
}

func path(verb, path string) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{Verb: verb, Path: path}
}

func TestAllows(t *testing.T) {
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
		"as it says":                      {pods, request("get", "", "pods", "a", "x"), true},
		"another verb":                    {pods, request("list", "", "pods", "a", ""), false},
		"another group":                   {pods, request("get", "metrics", "pods", "a", "x"), false},
		"another resource":                {pods, request("get", "", "secrets", "a", "x"), false},
		"a subresource is another":        {pods, request("get", "", "pods/log", "a", "x"), false},
		"a path":                          {pods, path("get", "/pods"), false},
		"named":                           {named, request("delete", "apps", "deployments", "a", "b"), true},
		"another name":                    {named, request("delete", "apps", "deployments", "a", "c"), false},
		"no name":                         {named, request("create", "apps", "deployments", "a", ""), false},
		"subresource":                     {logs, request("get", "", "pods/log", "a", "x"), true},
		"its resource":                    {logs, request("get", "", "pods", "a", "x"), false},
		"subresource of any":              {logs, request("get", "apps", "deployments/scale", "a", "x"), true},
		"another subresource":             {logs, request("get", "apps", "deployments/status", "a", "x"), false},
		"everything has its subresources": {all, request("update", "apps", "deployments/finalizers", "a", "x"), true},
		"everything there is but paths":   {all, path("get", "/metrics"), false},
		"path":                            {paths, path("get", "/version"), true},
		"path below":                      {paths, path("get", "/version/x"), false},
		"path pattern":                    {paths, path("get", "/apis/apps/v1"), true},
		"path pattern, not below":         {paths, path("get", "/apisx"), false},
		"path, another verb":              {paths, path("post", "/version"), false},
		"path, a resource":                {paths, request("get", "", "pods", "", ""), false},
	} {
		if got := Allows(&test.rule, test.request); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestDecide(t *testing.T) {
	read := []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}}
	p := policy{
		clusterRoles: []*rbacv1.ClusterRole{{ObjectMeta: metav1.ObjectMeta{Name: "reader"}, Rules: read}},
		roles:        []*rbacv1.Role{{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "local"}, Rules: read}},
		roleBindings: []*rbacv1.RoleBinding{
			bound("a", "ClusterRole", "reader", rbacv1.Subject{Kind: "User", Name: "ann"}, rbacv1.Subject{Kind: "ServiceAccount", Name: "robot", Namespace: "b"}, rbacv1.Subject{Kind: "ServiceAccount", Name: "near"}),
			bound("a", "Role", "local", rbacv1.Subject{Kind: "Group", Name: "team"}),
			bound("b", "Role", "local", rbacv1.Subject{Kind: "User", Name: "bob"}),
			bound("b", "ClusterRole", "missing", rbacv1.Subject{Kind: "User", Name: "bob"}),
		},
		clusterRoleBindings: []*rbacv1.ClusterRoleBinding{
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
		r := request("get", "", "pods", test.namespace, "x")
		r.User = &test.user
		if got, reason := Decide(p, r); got != test.want || got != (reason != "") {
			t.Errorf("%s: %t %q", name, got, reason)
		}
	}
}

func TestMissing(t *testing.T) {
	p := policy{
		clusterRoles: []*rbacv1.ClusterRole{
			{ObjectMeta: metav1.ObjectMeta{Name: "edit"}, Rules: []rbacv1.PolicyRule{rule("", []string{"get", "list", "create", "delete"}, "pods", "secrets")}},
			{ObjectMeta: metav1.ObjectMeta{Name: "cluster-admin"}, Rules: Everything()},
		},
		roleBindings: []*rbacv1.RoleBinding{bound("a", "ClusterRole", "edit", rbacv1.Subject{Kind: "User", Name: "ann"})},
		clusterRoleBindings: []*rbacv1.ClusterRoleBinding{{
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
