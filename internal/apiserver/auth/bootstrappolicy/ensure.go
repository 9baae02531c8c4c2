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
	"k8s.io/component-helpers/auth/rbac/reconciliation"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/rbac"
	"github.com/coppice-dev/coppice/internal/collect/pace"
)

// Ensure creates the default roles and bindings, adds missing rules and subjects to existing ones, and
// returns when policy has them all. It retries until ctx ends.
func Ensure(ctx context.Context, log *slog.Logger, client rbacclient.RbacV1Interface, policy rbac.Policy) error {
	defaults := Defaults()
	err := pace.Retry(ctx, log, "create the default roles", func(ctx context.Context) error {
		// Cluster roles and bindings come first: components that start now need them, and the namespaces of
		// the others may not exist yet.
		if err := ensureInCluster(ctx, client, defaults); err != nil {
			return err
		}
		for _, namespace := range namespaces() {
			if err := ensureInNamespace(ctx, client, namespace, defaults); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return pace.Retry(ctx, log, "observe the default roles", func(context.Context) error { return checkComplete(policy, defaults) })
}

// namespaces returns the namespaces that have default Roles.
func namespaces() []string { return []string{metav1.NamespaceSystem, metav1.NamespacePublic} }

func ensureInCluster(ctx context.Context, client rbacclient.RbacV1Interface, defaults Objects) error {
	roles, err := client.ClusterRoles().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	bindings, err := client.ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(pace.WritesAtStart)
	for _, wanted := range defaults.ClusterRoles {
		owner := func(r *rbacv1.ClusterRole) reconciliation.RuleOwner {
			return reconciliation.ClusterRoleRuleOwner{ClusterRole: r}
		}
		group.Go(func() error { return ensureRole(ctx, client.ClusterRoles(), find(wanted, roles.Items), wanted, owner) })
	}
	for _, wanted := range defaults.ClusterRoleBindings {
		adapter := func(b *rbacv1.ClusterRoleBinding) reconciliation.RoleBinding {
			return reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: b}
		}
		group.Go(func() error {
			return ensureBinding(ctx, client.ClusterRoleBindings(), find(wanted, bindings.Items), wanted, adapter)
		})
	}
	return group.Wait()
}

func ensureInNamespace(ctx context.Context, client rbacclient.RbacV1Interface, namespace string, defaults Objects) error {
	roles, err := client.Roles(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	bindings, err := client.RoleBindings(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(pace.WritesAtStart)
	for _, wanted := range defaults.Roles {
		owner := func(r *rbacv1.Role) reconciliation.RuleOwner { return reconciliation.RoleRuleOwner{Role: r} }
		if wanted.Namespace == namespace {
			group.Go(func() error {
				return ensureRole(ctx, client.Roles(namespace), find(wanted, roles.Items), wanted, owner)
			})
		}
	}
	for _, wanted := range defaults.RoleBindings {
		adapter := func(b *rbacv1.RoleBinding) reconciliation.RoleBinding {
			return reconciliation.RoleBindingAdapter{RoleBinding: b}
		}
		if wanted.Namespace == namespace {
			group.Go(func() error {
				return ensureBinding(ctx, client.RoleBindings(namespace), find(wanted, bindings.Items), wanted, adapter)
			})
		}
	}
	return group.Wait()
}

// object is a pointer to a role or a binding.
type object[T any] interface {
	*T
	metav1.Object
}

// find returns the object with the name of wanted, or nil.
func find[T any, P object[T]](wanted P, objects []T) P {
	for i := range objects {
		if P(&objects[i]).GetName() == wanted.GetName() {
			return &objects[i]
		}
	}
	return nil
}

// writer writes roles, or bindings, of one kind.
type writer[P any] interface {
	Create(ctx context.Context, object P, options metav1.CreateOptions) (P, error)
	Update(ctx context.Context, object P, options metav1.UpdateOptions) (P, error)
	Delete(ctx context.Context, name string, options metav1.DeleteOptions) error
}

func ensureRole[T any, P object[T]](ctx context.Context, client writer[P], existing, wanted P, owner func(P) reconciliation.RuleOwner) error {
	var old reconciliation.RuleOwner
	if existing != nil {
		old = owner(existing)
	}
	operation, next, err := planRole(old, owner(wanted))
	if err != nil || operation == reconciliation.ReconcileNone {
		return err
	}
	return write(ctx, client, operation, next.GetObject(), existing)
}

func ensureBinding[T any, P object[T]](ctx context.Context, client writer[P], existing, wanted P, adapter func(P) reconciliation.RoleBinding) error {
	var old reconciliation.RoleBinding
	if existing != nil {
		old = adapter(existing)
	}
	operation, next, err := planBinding(old, adapter(wanted))
	if err != nil || operation == reconciliation.ReconcileNone {
		return err
	}
	return write(ctx, client, operation, next.GetObject(), existing)
}

// write executes an operation. existing is the object before it.
func write[T any, P object[T]](ctx context.Context, client writer[P], operation reconciliation.ReconcileOperation, obj any, existing P) error {
	next, ok := obj.(P)
	if !ok {
		return fmt.Errorf("reconcile default roles: %T instead of %T", obj, existing)
	}
	if operation == reconciliation.ReconcileUpdate {
		_, err := client.Update(ctx, next, metav1.UpdateOptions{})
		return err
	}
	if operation == reconciliation.ReconcileRecreate {
		uid := existing.GetUID()
		err := client.Delete(ctx, existing.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	_, err := client.Create(ctx, next, metav1.CreateOptions{})
	return err
}

// checkComplete returns an error until policy has all default roles and bindings.
func checkComplete(policy rbac.Policy, defaults Objects) error {
	lacks := func(kind, name string) error { return fmt.Errorf("the informer does not have %s %s yet", kind, name) }
	for _, role := range defaults.ClusterRoles {
		if _, ok := policy.ClusterRole(role.Name); !ok {
			return lacks("ClusterRole", role.Name)
		}
	}
	for _, role := range defaults.Roles {
		if _, ok := policy.Role(role.Namespace, role.Name); !ok {
			return lacks("Role", role.Namespace+"/"+role.Name)
		}
	}
	known := map[string]bool{}
	for _, binding := range policy.ClusterRoleBindings() {
		known[binding.Name] = true
	}
	for _, namespace := range namespaces() {
		for _, binding := range policy.RoleBindings(namespace) {
			known[namespace+"/"+binding.Name] = true
		}
	}
	for _, binding := range defaults.ClusterRoleBindings {
		if !known[binding.Name] {
			return lacks("ClusterRoleBinding", binding.Name)
		}
	}
	for _, binding := range defaults.RoleBindings {
		if key := binding.Namespace + "/" + binding.Name; !known[key] {
			return lacks("RoleBinding", key)
		}
	}
	return nil
}
