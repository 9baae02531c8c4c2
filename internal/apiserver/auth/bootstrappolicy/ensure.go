package roles

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	rbacclient "k8s.io/client-go/kubernetes/typed/rbac/v1"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/rbac"
)

const (
	// ensurePoll is how often a server that has just begun to serve is tried.
	ensurePoll = 10 * time.Millisecond
	// together is how many objects are written at a time: one after the other they
	// would be a good part of a start.
	together = 16
)

// Ensure makes the default roles and bindings, completes those that have become
// incomplete, and returns when policy has them all. Until ctx ends it tries again.
func Ensure(ctx context.Context, client rbacclient.RbacV1Interface, policy *Policy) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, ensurePoll, true, func(ctx context.Context) (bool, error) {
		last = ensure(ctx, client)
		return last == nil && policy.complete(), nil
	})
	if err != nil {
		return fmt.Errorf("make the default roles: %w", errors.Join(err, last))
	}
	return nil
}

// complete tells whether all default roles and bindings are known.
func (p *Policy) complete() bool {
	for _, role := range rbac.DefaultRoles() {
		if _, ok := p.ClusterRole(role.Name); !ok {
			return false
		}
	}
	for _, binding := range rbac.DefaultBindings() {
		if _, err := p.clusterRoleBindings.Get(binding.Name); err != nil {
			return false
		}
	}
	return true
}

func ensure(ctx context.Context, client rbacclient.RbacV1Interface) error {
	roles, err := client.ClusterRoles().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	bindings, err := client.ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	existingRoles, existingBindings := map[string]*rbacv1.ClusterRole{}, map[string]*rbacv1.ClusterRoleBinding{}
	for i := range roles.Items {
		existingRoles[roles.Items[i].Name] = &roles.Items[i]
	}
	for i := range bindings.Items {
		existingBindings[bindings.Items[i].Name] = &bindings.Items[i]
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(together)
	for _, wanted := range rbac.DefaultRoles() {
		group.Go(func() error { return ensureRole(ctx, client.ClusterRoles(), existingRoles[wanted.Name], wanted) })
	}
	for _, wanted := range rbac.DefaultBindings() {
		group.Go(func() error {
			return ensureBinding(ctx, client.ClusterRoleBindings(), existingBindings[wanted.Name], wanted)
		})
	}
	return group.Wait()
}

func ensureRole(ctx context.Context, client rbacclient.ClusterRoleInterface, existing, wanted *rbacv1.ClusterRole) error {
	if existing == nil {
		_, err := client.Create(ctx, wanted, metav1.CreateOptions{})
		return err
	}
	next, changed := rbac.ReconcileRole(existing, wanted)
	if !changed {
		return nil
	}
	_, err := client.Update(ctx, next, metav1.UpdateOptions{})
	return err
}

func ensureBinding(ctx context.Context, client rbacclient.ClusterRoleBindingInterface, existing, wanted *rbacv1.ClusterRoleBinding) error {
	if existing == nil {
		_, err := client.Create(ctx, wanted, metav1.CreateOptions{})
		return err
	}
	next, changed, replace := rbac.ReconcileBinding(existing, wanted)
	if !changed {
		return nil
	}
	if replace {
		uid := existing.UID
		if err := client.Delete(ctx, existing.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		_, err := client.Create(ctx, next, metav1.CreateOptions{})
		return err
	}
	_, err := client.Update(ctx, next, metav1.UpdateOptions{})
	return err
}
