package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// ByController is the name of the index of objects by their controller.
const ByController = "controller"

// RefManager manages the controller references of the objects of one resource. Using
// their cache, it finds the dependents of an owner, adopts orphans that match its
// selector and releases dependents that no longer match.
type RefManager[T metav1.Object] struct {
	informer cache.SharedIndexInformer
	patch    Patch[T]
}

// Patch is the Patch method of a typed client.
type Patch[T metav1.Object] func(ctx context.Context, namespace, name string, kind types.PatchType, patch []byte) (T, error)

// NewRefManager adds an index to the informer, unless it has been added for another
// controller. The informer must not have been started.
func NewRefManager[T metav1.Object](informer cache.SharedIndexInformer, patch Patch[T]) (*RefManager[T], error) {
	if _, ok := informer.GetIndexer().GetIndexers()[ByController]; !ok {
		if err := informer.AddIndexers(cache.Indexers{ByController: controllerKey}); err != nil {
			return nil, fmt.Errorf("index by controller: %w", err)
		}
	}
	return &RefManager[T]{informer, patch}, nil
}

// controllerKey indexes an object by the uid of its controller, or by its namespace if it has
// no controller.
func controllerKey(obj any) ([]string, error) {
	o, ok := obj.(metav1.Object)
	if !ok {
		return nil, fmt.Errorf("%T has no metadata", obj)
	}
	if controller := metav1.GetControllerOfNoCopy(o); controller != nil {
		return []string{string(controller.UID)}, nil
	}
	return []string{orphansOf(o.GetNamespace())}, nil
}

// orphansOf returns a key that cannot be a uid: uids have no slash.
func orphansOf(namespace string) string { return "orphans/" + namespace }

// Source returns a source for the controller of that kind: an object enqueues the owner of that
// kind that controls it, and an orphan the owners that may adopt it; adopters may be nil.
func (m *RefManager[T]) Source(kind schema.GroupVersionKind, adopters func(T) []cache.ObjectName) Source {
	return Source{Informer: m.informer, Keys: func(obj any) []cache.ObjectName {
		o, ok := obj.(T)
		if !ok {
			return nil
		}
		controller := metav1.GetControllerOfNoCopy(o)
		switch {
		case controller == nil && adopters != nil:
			return adopters(o)
		case controller == nil || controller.Kind != kind.Kind || groupOf(controller.APIVersion) != kind.Group:
			return nil
		}
		return []cache.ObjectName{{Namespace: o.GetNamespace(), Name: controller.Name}}
	}}
}

func groupOf(apiVersion string) string {
	version, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return ""
	}
	return version.Group
}

// Indexer returns the cache of the objects.
func (m *RefManager[T]) Indexer() cache.Indexer { return m.informer.GetIndexer() }

// ControlledBy lists the objects in the cache that name the owner as their controller. They
// belong to the cache and must be copied before they are changed.
func (m *RefManager[T]) ControlledBy(owner types.UID) []T { return m.list(string(owner)) }

func (m *RefManager[T]) list(key string) []T {
	objects, err := m.informer.GetIndexer().ByIndex(ByController, key)
	if err != nil {
		return nil // the only error is a missing index
	}
	list := make([]T, 0, len(objects))
	for _, obj := range objects {
		if o, ok := obj.(T); ok {
			list = append(list, o)
		}
	}
	return list
}

// AdoptAndRelease adopts the orphans that the owner's selector matches, releases the owner's
// dependents that it no longer matches, and returns the objects in the cache that the owner
// then controls. Either fails with a conflict if the object differs from the cached one; the
// other objects are still adopted and released. Every change is recorded in expectations, which
// may be nil.
func (m *RefManager[T]) AdoptAndRelease(ctx context.Context, owner Owner, expectations *Expectations) ([]T, error) {
	var dependents []T
	var failed []error
	change := func(obj T, metadata map[string]any) {
		changed, err := m.changeOwner(ctx, obj, metadata)
		if err != nil {
			failed = append(failed, err)
			return
		}
		if expectations != nil {
			expectations.ExpectVersion(owner.GetUID(), changed.GetResourceVersion())
		}
		if metav1.IsControlledBy(changed, owner) {
			dependents = append(dependents, changed)
		}
	}
	canAdopt := sync.OnceValue(func() error { return owner.canAdopt(ctx) })
	for _, obj := range m.list(string(owner.GetUID())) {
		switch owner.relationTo(obj) {
		case owned:
			dependents = append(dependents, obj)
		case mismatched:
			change(obj, owner.release())
		case unrelated, orphan:
		}
	}
	for _, obj := range m.list(orphansOf(owner.GetNamespace())) {
		if !owner.Adopts(obj) {
			continue
		}
		if err := canAdopt(); err != nil {
			return nil, errors.Join(append(failed, err)...)
		}
		change(obj, owner.adopt())
	}
	return dependents, errors.Join(failed...)
}

// changeOwner patches the metadata of an object, on the condition that the object equals the
// cached one.
func (m *RefManager[T]) changeOwner(ctx context.Context, obj T, metadata map[string]any) (T, error) {
	metadata["uid"], metadata["resourceVersion"] = obj.GetUID(), obj.GetResourceVersion()
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return obj, fmt.Errorf("write a patch: %w", err)
	}
	changed, err := m.patch(ctx, obj.GetNamespace(), obj.GetName(), types.StrategicMergePatchType, patch)
	if err != nil {
		return obj, fmt.Errorf("change the owner of %s/%s: %w", obj.GetNamespace(), obj.GetName(), err)
	}
	return changed, nil
}

// MatchingOwners filters owners, which are all in the namespace of obj: it returns the ones
// whose selectors match obj and which may adopt it. An invalid or empty selector matches
// nothing.
func MatchingOwners[T metav1.Object](obj metav1.Object, owners []T, selector func(T) *metav1.LabelSelector) []cache.ObjectName {
	var keys []cache.ObjectName
	for _, owner := range owners {
		selects, err := metav1.LabelSelectorAsSelector(selector(owner))
		if err == nil && !selects.Empty() && selects.Matches(labels.Set(obj.GetLabels())) {
			keys = append(keys, cache.MetaObjectToName(owner))
		}
	}
	return keys
}
