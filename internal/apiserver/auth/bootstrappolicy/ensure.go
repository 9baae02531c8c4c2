package bootstrappolicy

import (
	"context"
	"fmt"
	"log/slog"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	rbacclient "k8s.io/client-go/kubernetes/typed/rbac/v1"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/rbac"
	"github.com/coppice-dev/coppice/internal/apiserver/poststart"
)

// Ensure creates the default roles and bindings, completes existing ones that grant less, and
// returns when policy has them all. It retries until ctx ends.
func Ensure(ctx context.Context, log *slog.Logger, client rbacclient.RbacV1Interface, policy rbac.Policy) error {
	return poststart.Retry(ctx, log, "create the default roles", func(ctx context.Context) error {
		if err := ensure(ctx, client); err != nil {
			return err
		}
		return checkComplete(policy)
	})
}

// checkComplete returns an error until policy has all default roles and bindings.
func checkComplete(policy rbac.Policy) error {
	for _, role := range DefaultRoles() {
		if _, ok := policy.ClusterRole(role.Name); !ok {
			return fmt.Errorf("the informer does not have ClusterRole %s yet", role.Name)
		}
	}
	known := map[string]bool{}
	for _, binding := range policy.ClusterRoleBindings() {
		known[binding.Name] = true
	}
	for _, binding := range DefaultBindings() {
		if !known[binding.Name] {
			return fmt.Errorf("the informer does not have ClusterRoleBinding %s yet", binding.Name)
		}
	}
	return nil
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
	group.SetLimit(poststart.Concurrency)
	for _, wanted := range DefaultRoles() {
		group.Go(func() error { return ensureRole(ctx, client.ClusterRoles(), existingRoles[wanted.Name], wanted) })
	}
	for _, wanted := range DefaultBindings() {
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
	next, changed := reconcileRole(existing, wanted)
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
	next, changed, replace := reconcileBinding(existing, wanted)
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
