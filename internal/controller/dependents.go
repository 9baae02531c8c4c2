package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// ByController is the index of objects by who controls them.
const ByController = "controller"

// Owner is an object whose dependents are looked for.
type Owner struct {
	metav1.Object
	Kind     schema.GroupVersionKind
	Selector labels.Selector
	// Member is what there is to being a dependent besides the labels, as a name may be;
	// nil for nothing.
	Member func(metav1.Object) bool
	// Finalizer is put on a dependent that is adopted, and taken from one that is
	// released; none if empty.
	Finalizer string
	// Live reads the object from the server, not from a cache.
	Live func(ctx context.Context) (metav1.Object, error)
}

// Reference is the owner reference of a dependent that the owner controls. A foreground
// deletion of the owner waits for it.
func (o Owner) Reference() *metav1.OwnerReference {
	return metav1.NewControllerRef(o.Object, o.Kind)
}

// Dependents is the cache of the objects of one resource that have controllers.
type Dependents[T metav1.Object] struct {
	informer cache.SharedIndexInformer
	patch    Patch[T]
}

// Patch is the method of a typed client.
type Patch[T metav1.Object] func(ctx context.Context, namespace, name string, kind types.PatchType, patch []byte) (T, error)

// NewDependents adds an index to the informer, unless it has been added for another
// controller. The informer must not have been started.
func NewDependents[T metav1.Object](informer cache.SharedIndexInformer, patch Patch[T]) (*Dependents[T], error) {
	if _, ok := informer.GetIndexer().GetIndexers()[ByController]; !ok {
		if err := informer.AddIndexers(cache.Indexers{ByController: controllerKey}); err != nil {
			return nil, fmt.Errorf("index by controller: %w", err)
		}
	}
	return &Dependents[T]{informer, patch}, nil
}

// controllerKey is the uid of the controller, or the namespace for an object without.
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

// orphansOf is no uid: those have no slash.
func orphansOf(namespace string) string { return "orphans/" + namespace }

// Source gives the controllers of these objects work: every object concerns the owner
// that controls it, of that kind, and one without a controller those that candidates
// finds, which may be nil.
func (d *Dependents[T]) Source(kind schema.GroupVersionKind, candidates func(T) []cache.ObjectName) Source {
	return Source{Informer: d.informer, Keys: func(obj any) []cache.ObjectName {
		o, ok := obj.(T)
		if !ok {
			return nil
		}
		controller := metav1.GetControllerOfNoCopy(o)
		switch {
		case controller == nil && candidates != nil:
			return candidates(o)
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

// View is the cache, for a Ledger.
func (d *Dependents[T]) View() cache.Indexer { return d.informer.GetIndexer() }

// ControlledBy lists the objects in the cache that name the owner as their controller.
// They are the cache's own: copy what is to be changed.
func (d *Dependents[T]) ControlledBy(owner types.UID) []T { return d.list(string(owner)) }

func (d *Dependents[T]) list(key string) []T {
	objects, err := d.informer.GetIndexer().ByIndex(ByController, key)
	if err != nil {
		return nil // there is that index
	}
	list := make([]T, 0, len(objects))
	for _, obj := range objects {
		if o, ok := obj.(T); ok {
			list = append(list, o)
		}
	}
	return list
}

// Of lists the objects in the cache that the owner controls, once it has adopted those
// without a controller that its selector matches and released those of its own that it
// no longer matches. Both end with a conflict when the object is not as the cache shows
// it; others are adopted and released all the same. The ledger, if not nil, takes it in.
func (d *Dependents[T]) Of(ctx context.Context, owner Owner, ledger *Ledger) ([]T, error) {
	var mine []T
	var failed []error
	change := func(obj T, relation map[string]any) {
		changed, err := d.relate(ctx, obj, relation)
		if err != nil {
			failed = append(failed, err)
			return
		}
		if ledger != nil {
			ledger.Created(owner.GetUID(), changed.GetResourceVersion())
		}
		if metav1.IsControlledBy(changed, owner) {
			mine = append(mine, changed)
		}
	}
	mayAdopt := once(func() error { return owner.mayAdopt(ctx) })
	for _, obj := range d.list(string(owner.GetUID())) {
		switch KinshipOf(owner, obj) {
		case Mine:
			mine = append(mine, obj)
		case Astray:
			change(obj, owner.release())
		case Stranger, Orphan:
		}
	}
	for _, obj := range d.list(orphansOf(owner.GetNamespace())) {
		if KinshipOf(owner, obj) != Orphan {
			continue
		}
		if err := mayAdopt(); err != nil {
			return nil, errors.Join(append(failed, err)...)
		}
		change(obj, owner.adopt())
	}
	return mine, errors.Join(failed...)
}

// adopt is what metadata to change to make an object the owner's.
func (o Owner) adopt() map[string]any {
	metadata := map[string]any{"ownerReferences": []map[string]any{{
		"apiVersion": o.Kind.GroupVersion().String(), "kind": o.Kind.Kind, "name": o.GetName(), "uid": o.GetUID(),
		"controller": true, "blockOwnerDeletion": true,
	}}}
	if o.Finalizer != "" {
		metadata["finalizers"] = []string{o.Finalizer}
	}
	return metadata
}

// release is the opposite of adopt.
func (o Owner) release() map[string]any {
	metadata := map[string]any{"ownerReferences": []map[string]any{{"$patch": "delete", "uid": o.GetUID()}}}
	if o.Finalizer != "" {
		metadata["$deleteFromPrimitiveList/finalizers"] = []string{o.Finalizer}
	}
	return metadata
}

// relate changes the metadata of an object as the cache shows it.
func (d *Dependents[T]) relate(ctx context.Context, obj T, metadata map[string]any) (T, error) {
	metadata["uid"], metadata["resourceVersion"] = obj.GetUID(), obj.GetResourceVersion()
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return obj, fmt.Errorf("write a patch: %w", err)
	}
	changed, err := d.patch(ctx, obj.GetNamespace(), obj.GetName(), types.StrategicMergePatchType, patch)
	if err != nil {
		return obj, fmt.Errorf("change the owner of %s/%s: %w", obj.GetNamespace(), obj.GetName(), err)
	}
	return changed, nil
}

// mayAdopt asks the server whether the owner is still there, and not being deleted: the
// collector would collect what a dead owner adopts.
func (o Owner) mayAdopt(ctx context.Context) error {
	live, err := o.Live(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("read %s %s/%s before it adopts: %w", o.Kind.Kind, o.GetNamespace(), o.GetName(), err)
	case live.GetUID() != o.GetUID():
		return apierrors.NewNotFound(schema.GroupResource{Group: o.Kind.Group, Resource: o.Kind.Kind}, o.GetName())
	case live.GetDeletionTimestamp() != nil:
		return apierrors.NewConflict(schema.GroupResource{Group: o.Kind.Group, Resource: o.Kind.Kind}, o.GetName(), errors.New("it is being deleted and adopts nothing"))
	}
	return nil
}

func once(ask func() error) func() error {
	asked := false
	var answer error
	return func() error {
		if !asked {
			asked, answer = true, ask()
		}
		return answer
	}
}
