package reader

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/inventory"
	"github.com/coppice-dev/coppice/internal/ownership"
)

// list reads all objects of a resource; where the user may not, those of the namespaces that the options
// name.
func (r *reader) list(ctx context.Context, resource *inventory.Resource) error {
	if r.isConfined(resource) && !r.result.Beyond {
		return r.listOneByOne(ctx, resource, r.result.Within)
	}
	err := r.listIn(ctx, resource, metav1.NamespaceAll)
	if apierrors.IsForbidden(err) && resource.Namespaced && len(r.options.Namespaces) > 0 {
		return r.listEach(ctx, resource, err)
	}
	if err != nil && ctx.Err() == nil {
		r.missed(unread(resource, "", err))
		return nil
	}
	return unless(ctx, err)
}

// isConfined reports whether not all objects of a resource are kept.
func (r *reader) isConfined(resource *inventory.Resource) bool {
	return r.result.Within != nil && resource.Namespaced && resource.OwnerKind() != leaseKind()
}

// listOneByOne reads the objects of a resource in some namespaces.
func (r *reader) listOneByOne(ctx context.Context, resource *inventory.Resource, namespaces []string) error {
	for _, namespace := range namespaces {
		if err := r.listIn(ctx, resource, namespace); err != nil {
			if err := unless(ctx, err); err != nil {
				return err
			}
			r.missed(unread(resource, namespace, err))
		}
	}
	return nil
}

// listEach reads the objects of a resource in some namespaces, as those of all are forbidden.
func (r *reader) listEach(ctx context.Context, resource *inventory.Resource, forbidden error) error {
	if err := r.listOneByOne(ctx, resource, r.options.Namespaces); err != nil {
		return err
	}
	other := unread(resource, "", forbidden)
	other.Except = r.options.Namespaces
	r.missed(other)
	return nil
}

func unread(resource *inventory.Resource, namespace string, err error) inventory.Unread {
	return inventory.Unread{Resource: resource.GroupVersionResource, Namespace: namespace, Why: err.Error(), Forbidden: apierrors.IsForbidden(err)}
}

// listIn reads the objects of a resource in a namespace, or in all. It keeps nothing of a list that
// breaks off: a part of the objects would be taken for all.
func (r *reader) listIn(ctx context.Context, resource *inventory.Resource, namespace string) error {
	var objects []*inventory.Object
	var pods map[ownership.UID]*inventory.Pod
	if r.readsPods(resource) {
		pods = make(map[ownership.UID]*inventory.Pod)
	}
	convert := newConverter(resource)
	err := r.eachIn(ctx, resource, namespace, func(meta *metav1.ObjectMeta, pod *inventory.Pod) {
		object := convert.object(meta)
		objects = append(objects, object)
		if pod != nil {
			pod.Node, pod.Phase = convert.text(pod.Node), corev1.PodPhase(convert.text(string(pod.Phase)))
			pods[object.UID] = pod
		}
	})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
		return errors.New("discovery names it, but the server does not serve it")
	case err != nil:
		return err
	}
	r.keep(objects, pods)
	return nil
}
