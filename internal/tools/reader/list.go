package reader

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// list reads all objects of a resource. If that is forbidden, it reads the objects of the namespaces in the
// options.
func (r *reader) list(ctx context.Context, resource *inventory.Resource) error {
	everywhere := part{isPods: r.readsPods(resource)}
	namespaces := r.options.Namespaces
	if r.result.Within != nil {
		namespaces = r.result.Within
	}
	if r.isConfined(resource) {
		switch {
		case !r.result.Beyond:
			return r.listOneByOne(ctx, resource, namespaces)
		case everywhere.isPods:
			return r.listPodsBeyond(ctx, resource)
		}
		everywhere.isWanted = r.isWanted
	}
	err := r.listPart(ctx, resource, everywhere)
	if apierrors.IsForbidden(err) && resource.Namespaced && len(namespaces) > 0 {
		return r.listEach(ctx, resource, namespaces, err)
	}
	if err != nil && ctx.Err() == nil {
		r.missed(unread(resource, "", err))
		return nil
	}
	return unless(ctx, err)
}

// listPodsBeyond reads the pods of the namespaces to which the reading is confined, and the metadata of wanted
// pods elsewhere: only the owners of the latter matter, and whole pods are large.
func (r *reader) listPodsBeyond(ctx context.Context, pods *inventory.Resource) error {
	if err := r.listOneByOne(ctx, pods, r.result.Within); err != nil {
		return err
	}
	err := r.listPart(ctx, pods, part{isWanted: r.isWantedElsewhere})
	if err != nil && ctx.Err() == nil {
		u := unread(pods, "", err)
		u.Except = r.result.Within
		r.missed(u)
		return nil
	}
	return unless(ctx, err)
}

// isConfined reports whether only a part of the objects of a resource is kept.
func (r *reader) isConfined(resource *inventory.Resource) bool {
	return r.result.Within != nil && resource.Namespaced && resource.OwnerKind() != inventory.LeaseKind() &&
		!slices.Contains(r.result.Everywhere, resource.OwnerKind())
}

// listOneByOne reads the objects of a resource in some namespaces.
func (r *reader) listOneByOne(ctx context.Context, resource *inventory.Resource, namespaces []string) error {
	for _, namespace := range namespaces {
		if err := r.listPart(ctx, resource, part{namespace: namespace, isPods: r.readsPods(resource)}); err != nil {
			if err := unless(ctx, err); err != nil {
				return err
			}
			r.missed(unread(resource, namespace, err))
		}
	}
	return nil
}

// listEach reads the objects of a resource in some namespaces, since listing all is forbidden.
func (r *reader) listEach(ctx context.Context, resource *inventory.Resource, namespaces []string, forbidden error) error {
	if err := r.listOneByOne(ctx, resource, namespaces); err != nil {
		return err
	}
	other := unread(resource, "", forbidden)
	other.Except = namespaces
	r.missed(other)
	return nil
}

func unread(resource *inventory.Resource, namespace string, err error) inventory.Unread {
	return inventory.Unread{Resource: resource.GroupVersionResource, Namespace: namespace, Why: err.Error(), Forbidden: apierrors.IsForbidden(err)}
}

// listPart reads objects of a resource. If they cannot be converted to its version, it tries the other versions: the one
// in which they are stored needs no conversion.
func (r *reader) listPart(ctx context.Context, resource *inventory.Resource, of part) error {
	err := r.listVersion(ctx, resource, of)
	if refused, ok := refusal.Of(err); !ok || refused.By != refusal.ByConversion {
		return err
	}
	for _, version := range resource.Versions {
		if of.version = version; version != resource.Version && r.listVersion(ctx, resource, of) == nil {
			return nil
		}
	}
	return err
}

// listVersion reads objects of a resource in one version. It drops a list that breaks off, since a part would be taken
// for the whole.
func (r *reader) listVersion(ctx context.Context, resource *inventory.Resource, of part) error {
	var objects []*inventory.Object
	var pods map[ownership.UID]*inventory.Pod
	if of.isPods {
		pods = make(map[ownership.UID]*inventory.Pod)
	}
	convert := newConverter(resource)
	err := r.each(ctx, resource, of, func(meta *metav1.ObjectMeta, pod *inventory.Pod) {
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
