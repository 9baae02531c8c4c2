// Package systemobjects creates the objects that every cluster has: the system namespaces, the system
// priority classes, the priority levels and flow schemas, the ServiceCIDR, and the ConfigMap with which aggregated API
// servers authenticate requests of this one. Package bootstrappolicy creates the default roles.
package systemobjects

import (
	"context"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	schedulingclient "k8s.io/client-go/kubernetes/typed/scheduling/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/builtin"
	"github.com/coppice-dev/coppice/internal/collect/pace"
)

// EnsureNamespaces creates the missing system namespaces, and retries until ctx ends.
func EnsureNamespaces(ctx context.Context, log *slog.Logger, client corev1client.NamespacesGetter) error {
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease} {
		err := pace.Retry(ctx, log, "create namespace "+name, func(ctx context.Context) error {
			return ensureNamespace(ctx, client.Namespaces(), name)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func ensureNamespace(ctx context.Context, client corev1client.NamespaceInterface, name string) error {
	// The namespace is read first: a server whose store is full cannot write, but must be able
	// to start.
	if _, err := client.Get(ctx, name, metav1.GetOptions{}); err == nil {
		return nil
	}
	_, err := client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return ignoreExisting(err)
}

// KeepNamespaces recreates kube-node-lease whenever it has been deleted, in the background until ctx ends.
// The other system namespaces cannot be deleted.
func KeepNamespaces(ctx context.Context, log *slog.Logger, informer cache.SharedInformer, client corev1client.NamespacesGetter) error {
	return keep(ctx, informer, corev1.NamespaceNodeLease, func() error { return EnsureNamespaces(ctx, log, client) })
}

// EnsurePriorityClasses creates the missing system priority classes, and retries until ctx ends. The server
// refuses to delete them.
func EnsurePriorityClasses(ctx context.Context, log *slog.Logger, client schedulingclient.PriorityClassesGetter) error {
	for _, class := range builtin.SystemPriorityClasses() {
		err := pace.Retry(ctx, log, "create priority class "+class.Name, func(ctx context.Context) error {
			_, err := client.PriorityClasses().Create(ctx, class, metav1.CreateOptions{})
			return ignoreExisting(err)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func ignoreExisting(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
