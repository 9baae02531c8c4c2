package apiserver

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/restriction"
)

// nodePods reads the registry of pods for the rules about nodes. What the watch cache has
// is enough where it says yes: a node knows of its pods by a watch of the same cache.
// Where it says no, the store is asked.
type nodePods struct {
	pods interface {
		rest.Getter
		rest.Lister
	} // set before the server serves
}

var _ restriction.Pods = (*nodePods)(nil)

// read takes the registry of pods.
func (n *nodePods) read(pods rest.Storage) error {
	registry, ok := pods.(interface {
		rest.Getter
		rest.Lister
	})
	if !ok {
		return fmt.Errorf("pods of nodes cannot be found in a %T", pods)
	}
	n.pods = registry
	return nil
}

// The resource versions of what may be out of date, and of what is not.
const (
	fromCache = "0"
	live      = ""
)

// NodeOf implements confine.Pods.
func (n *nodePods) NodeOf(ctx context.Context, namespace, name string) (node string, found bool, err error) {
	ctx = genericrequest.WithNamespace(ctx, namespace)
	for _, version := range []string{fromCache, live} {
		obj, err := n.pods.Get(ctx, name, &metav1.GetOptions{ResourceVersion: version})
		if pod, ok := obj.(*corev1.Pod); ok && err == nil && (pod.Spec.NodeName != "" || version == live) {
			return pod.Spec.NodeName, true, nil
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return "", false, fmt.Errorf("read pod %s/%s: %w", namespace, name, err)
		}
	}
	return "", false, nil
}

// Refers implements confine.Pods.
func (n *nodePods) Refers(ctx context.Context, node, namespace string, matches func(*corev1.Pod) bool) (bool, error) {
	ctx = genericrequest.WithNamespace(ctx, namespace)
	for _, version := range []string{fromCache, live} {
		options := &internalversion.ListOptions{ResourceVersion: version, FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node)}
		obj, err := n.pods.List(ctx, options)
		if err != nil {
			return false, fmt.Errorf("list the pods of node %s: %w", node, err)
		}
		list, ok := obj.(*corev1.PodList)
		if !ok {
			return false, fmt.Errorf("the list of pods is a %T", obj)
		}
		for i := range list.Items {
			if matches(&list.Items[i]) {
				return true, nil
			}
		}
	}
	return false, nil
}
