package reader

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// roles reads all RBAC roles, and their bindings.
func (r *Facts) roles(ctx context.Context) (*inventory.Roles, error) {
	client := r.client.RbacV1()
	all := &inventory.Roles{ClusterRoles: make(map[string][]rbacv1.PolicyRule), Roles: make(map[types.NamespacedName][]rbacv1.PolicyRule)}
	everywhere, err := client.ClusterRoles().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range everywhere.Items {
		all.ClusterRoles[everywhere.Items[i].Name] = everywhere.Items[i].Rules
	}
	local, err := client.Roles("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range local.Items {
		all.Roles[types.NamespacedName{Namespace: local.Items[i].Namespace, Name: local.Items[i].Name}] = local.Items[i].Rules
	}
	clusterBindings, err := client.ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	bindings, err := client.RoleBindings("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	all.ClusterBindings, all.Bindings = clusterBindings.Items, bindings.Items
	return all, nil
}
