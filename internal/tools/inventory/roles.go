package inventory

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Roles are all RBAC roles of a cluster, and their bindings.
type Roles struct {
	// ClusterRoles and Roles are the rules of the roles, by name.
	ClusterRoles    map[string][]rbacv1.PolicyRule
	Roles           map[types.NamespacedName][]rbacv1.PolicyRule
	ClusterBindings []rbacv1.ClusterRoleBinding
	Bindings        []rbacv1.RoleBinding
}

// Of returns the rules for a service account in a namespace, or for cluster-scoped objects if it is empty.
func (r *Roles) Of(account types.NamespacedName, namespace string) []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for i := range r.ClusterBindings {
		b := &r.ClusterBindings[i]
		if binds(b.Subjects, account, "") {
			rules = append(rules, r.ClusterRoles[b.RoleRef.Name]...)
		}
	}
	for i := range r.Bindings {
		b := &r.Bindings[i]
		if namespace == "" || b.Namespace != namespace || !binds(b.Subjects, account, b.Namespace) {
			continue
		}
		if b.RoleRef.Kind == "ClusterRole" {
			rules = append(rules, r.ClusterRoles[b.RoleRef.Name]...)
			continue
		}
		rules = append(rules, r.Roles[types.NamespacedName{Namespace: b.Namespace, Name: b.RoleRef.Name}]...)
	}
	return rules
}

// binds reports whether subjects include a service account, by its name or by one of its groups.
func binds(subjects []rbacv1.Subject, account types.NamespacedName, home string) bool {
	for _, s := range subjects {
		switch s.Kind {
		case rbacv1.ServiceAccountKind:
			namespace := s.Namespace
			if namespace == "" {
				namespace = home
			}
			if s.Name == account.Name && namespace == account.Namespace {
				return true
			}
		case rbacv1.UserKind:
			if s.Name == "system:serviceaccount:"+account.Namespace+":"+account.Name {
				return true
			}
		case rbacv1.GroupKind:
			if s.Name == "system:serviceaccounts" || s.Name == "system:serviceaccounts:"+account.Namespace || s.Name == "system:authenticated" {
				return true
			}
		}
	}
	return false
}
