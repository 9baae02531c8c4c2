package details

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	rbac "k8s.io/client-go/kubernetes/typed/rbac/v1"

	"github.com/coppice-dev/coppice/internal/tools/finalizerowner"
)

// roles are all roles and bindings of a cluster.
type roles struct {
	clusterRoles    map[string][]rbacv1.PolicyRule
	roles           map[types.NamespacedName][]rbacv1.PolicyRule
	clusterBindings []rbacv1.ClusterRoleBinding
	bindings        []rbacv1.RoleBinding
}

func readRoles(ctx context.Context, client rbac.RbacV1Interface) (*roles, error) {
	r := &roles{clusterRoles: make(map[string][]rbacv1.PolicyRule), roles: make(map[types.NamespacedName][]rbacv1.PolicyRule)}
	everywhere, err := client.ClusterRoles().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range everywhere.Items {
		r.clusterRoles[everywhere.Items[i].Name] = everywhere.Items[i].Rules
	}
	local, err := client.Roles("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range local.Items {
		r.roles[types.NamespacedName{Namespace: local.Items[i].Namespace, Name: local.Items[i].Name}] = local.Items[i].Rules
	}
	clusterBindings, err := client.ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	bindings, err := client.RoleBindings("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	r.clusterBindings, r.bindings = clusterBindings.Items, bindings.Items
	return r, nil
}

// of returns the rules for a service account in a namespace, or for cluster-scoped objects if it is empty.
func (r *roles) of(account types.NamespacedName, namespace string) []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for i := range r.clusterBindings {
		b := &r.clusterBindings[i]
		if binds(b.Subjects, account, "") {
			rules = append(rules, r.clusterRoles[b.RoleRef.Name]...)
		}
	}
	for i := range r.bindings {
		b := &r.bindings[i]
		if namespace == "" || b.Namespace != namespace || !binds(b.Subjects, account, b.Namespace) {
			continue
		}
		if b.RoleRef.Kind == "ClusterRole" {
			rules = append(rules, r.clusterRoles[b.RoleRef.Name]...)
			continue
		}
		rules = append(rules, r.roles[types.NamespacedName{Namespace: b.Namespace, Name: b.RoleRef.Name}]...)
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

func leaseOf(one *coordinationv1.Lease) finalizerowner.Lease {
	var l finalizerowner.Lease
	if one.Spec.HolderIdentity != nil {
		l.Holder = *one.Spec.HolderIdentity
	}
	if one.Spec.RenewTime != nil {
		l.Renewed = one.Spec.RenewTime.Time
	}
	if one.Spec.LeaseDurationSeconds != nil {
		l.Duration = time.Duration(*one.Spec.LeaseDurationSeconds) * time.Second
	}
	return l
}
