// Package accesspolicy has what tests of authorization share: roles and bindings in memory, and
// requests to be judged by them.
package accesspolicy

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Policy is an rbac.Policy in memory.
type Policy struct {
	Roles        []*rbacv1.Role
	ClusterRoles []*rbacv1.ClusterRole
	// Bindings of all namespaces, and those that hold in the whole cluster.
	Bindings        []*rbacv1.RoleBinding
	ClusterBindings []*rbacv1.ClusterRoleBinding
}

// Role implements rbac.Policy.
func (p Policy) Role(namespace, name string) (*rbacv1.Role, bool) {
	for _, r := range p.Roles {
		if r.Namespace == namespace && r.Name == name {
			return r, true
		}
	}
	return nil, false
}

// ClusterRole implements rbac.Policy.
func (p Policy) ClusterRole(name string) (*rbacv1.ClusterRole, bool) {
	for _, r := range p.ClusterRoles {
		if r.Name == name {
			return r, true
		}
	}
	return nil, false
}

// RoleBindings implements rbac.Policy.
func (p Policy) RoleBindings(namespace string) []*rbacv1.RoleBinding {
	return slices.DeleteFunc(slices.Clone(p.Bindings), func(b *rbacv1.RoleBinding) bool { return b.Namespace != namespace })
}

// ClusterRoleBindings implements rbac.Policy.
func (p Policy) ClusterRoleBindings() []*rbacv1.ClusterRoleBinding { return p.ClusterBindings }

// Bind returns a binding, named like the role that it gives to the subjects in a namespace.
func Bind(namespace, kind, role string, subjects ...rbacv1.Subject) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role},
		Subjects:   subjects,
	}
}

// Request returns a request for a resource, or for a subresource that follows it after a slash.
func Request(verb, group, resource, namespace, name string) authorizer.AttributesRecord {
	resource, subresource, _ := strings.Cut(resource, "/")
	return authorizer.AttributesRecord{
		ResourceRequest: true, Verb: verb, APIGroup: group, Resource: resource, Subresource: subresource, Namespace: namespace, Name: name,
	}
}

// Path returns a request for a path that is no resource.
func Path(verb, path string) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{Verb: verb, Path: path}
}
