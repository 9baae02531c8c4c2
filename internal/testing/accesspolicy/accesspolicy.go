// Package accesspolicy has helpers for tests of authorization: in-memory roles and bindings, and
// requests to authorize.
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
	// The bindings of all namespaces, and the cluster's bindings.
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

// Bind returns a binding of subjects to a role in a namespace. It has the name of the role.
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

// Path returns a request for a non-resource path.
func Path(verb, path string) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{Verb: verb, Path: path}
}
