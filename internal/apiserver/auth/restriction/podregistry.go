package restriction

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// PodRegistry implements Pods with the registry of pods. A positive answer may come from the watch cache: a
// node observes its pods through the same cache. A negative one comes from the store.
type PodRegistry struct {
	registry func(resource string) rest.Storage
}

type podReader interface {
	rest.Getter
	rest.Lister
}

var _ Pods = (*PodRegistry)(nil)

// NewPodRegistry returns a PodRegistry. registry returns the registry of a resource, which is nil until the API is
// installed.
func NewPodRegistry(registry func(resource string) rest.Storage) *PodRegistry {
	return &PodRegistry{registry}
}

func (p *PodRegistry) reader() (podReader, error) {
	registry := p.registry("pods")
	reader, ok := registry.(podReader)
	if !ok {
		return nil, fmt.Errorf("the pods of nodes cannot be found in a %T", registry)
	}
	return reader, nil
}

// The resource versions of a read from the watch cache, and of a live read.
const (
	fromCache = "0"
	live      = ""
)

// Get implements Pods.
func (p *PodRegistry) Get(ctx context.Context, namespace, name string, enough func(*corev1.Pod) bool) (*corev1.Pod, error) {
	pods, err := p.reader()
	if err != nil {
		return nil, err
	}
	ctx = genericrequest.WithNamespace(ctx, namespace)
	for _, version := range []string{fromCache, live} {
		obj, err := pods.Get(ctx, name, &metav1.GetOptions{ResourceVersion: version})
		if pod, ok := obj.(*corev1.Pod); ok && err == nil && (version == live || enough(pod)) {
			return pod, nil
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("read pod %s/%s: %w", namespace, name, err)
		}
	}
	return nil, nil
}

// UID implements Pods. It reads the store.
func (p *PodRegistry) UID(ctx context.Context, resource, namespace, name string) (types.UID, error) {
	registry := p.registry(resource)
	reader, ok := registry.(rest.Getter)
	if !ok {
		return "", fmt.Errorf("%s cannot be read from a %T", resource, registry)
	}
	obj, err := reader.Get(genericrequest.WithNamespace(ctx, namespace), name, &metav1.GetOptions{ResourceVersion: live})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read %s %s/%s: %w", resource, namespace, name, err)
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return "", err
	}
	return m.GetUID(), nil
}

// HasMatch implements Pods.
func (p *PodRegistry) HasMatch(ctx context.Context, node, namespace string, matches func(*corev1.Pod) bool) (bool, error) {
	pods, err := p.reader()
	if err != nil {
		return false, err
	}
	ctx = genericrequest.WithNamespace(ctx, namespace)
	for _, version := range []string{fromCache, live} {
		options := &internalversion.ListOptions{ResourceVersion: version, FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node)}
		obj, err := pods.List(ctx, options)
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
