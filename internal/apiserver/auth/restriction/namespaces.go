package restriction

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
)

// Namespaces knows which namespaces are terminating.
type Namespaces interface {
	Terminating(ctx context.Context, name string) (bool, error)
}

type namespaces struct {
	cached corev1listers.NamespaceLister
	live   corev1client.NamespacesGetter
}

// NewNamespaces returns Namespaces that check a cache first. They read a namespace live if it is active in
// the cache: it may just have been deleted.
func NewNamespaces(cached corev1listers.NamespaceLister, live corev1client.NamespacesGetter) Namespaces {
	return namespaces{cached, live}
}

// Terminating implements Namespaces.
func (n namespaces) Terminating(ctx context.Context, name string) (bool, error) {
	if ns, err := n.cached.Get(name); err == nil && ns.DeletionTimestamp != nil {
		return true, nil
	}
	ns, err := n.live.Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("read namespace %s: %w", name, err)
	}
	return ns.DeletionTimestamp != nil, nil
}
