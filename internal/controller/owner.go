package controller

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Owner is an object whose dependents are looked for.
type Owner struct {
	metav1.Object
	Kind     schema.GroupVersionKind
	Selector labels.Selector
	// Match is what a dependent must satisfy besides the selector, such as having a certain
	// name; nil for nothing.
	Match func(metav1.Object) bool
	// Finalizer is added to a dependent that is adopted, and removed from one that is
	// released; none if empty.
	Finalizer string
	// Live reads the object from the server, not from a cache.
	Live func(ctx context.Context) (metav1.Object, error)
}

// Reference returns the controller reference of the owner's dependents. A foreground
// deletion of the owner waits for them.
func (o Owner) Reference() *metav1.OwnerReference {
	return metav1.NewControllerRef(o.Object, o.Kind)
}

// relation is what an object is to an owner that looks for its dependents.
type relation int

// The relations. An owner that is being deleted neither adopts nor releases (R24).
const (
	unrelated  relation = iota // controlled by another owner, or by none and not to be adopted
	owned                      // controlled by the owner, and matched by its selector
	orphan                     // controlled by none, and matched: to be adopted
	mismatched                 // controlled by the owner, but no longer matched: to be released
)

// relationTo returns what obj is to the owner. It is decided by controller references
// alone: other owners do not matter.
func (o Owner) relationTo(obj metav1.Object) relation {
	matches := o.Selector.Matches(labels.Set(obj.GetLabels())) && (o.Match == nil || o.Match(obj))
	ending := o.GetDeletionTimestamp() != nil
	switch controller := metav1.GetControllerOfNoCopy(obj); {
	case controller != nil && controller.UID != o.GetUID():
		return unrelated
	case controller != nil && (matches || ending):
		return owned
	case controller != nil:
		return mismatched
	case !matches, ending, obj.GetDeletionTimestamp() != nil, obj.GetNamespace() != o.GetNamespace():
		return unrelated
	}
	return orphan
}

// Adopts reports whether obj is an orphan that the owner is to adopt.
func (o Owner) Adopts(obj metav1.Object) bool { return o.relationTo(obj) == orphan }

// adopt returns the change of metadata that makes an object the owner's.
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

// release returns the opposite of adopt.
func (o Owner) release() map[string]any {
	metadata := map[string]any{"ownerReferences": []map[string]any{{"$patch": "delete", "uid": o.GetUID()}}}
	if o.Finalizer != "" {
		metadata["$deleteFromPrimitiveList/finalizers"] = []string{o.Finalizer}
	}
	return metadata
}

// canAdopt asks the server whether the owner is still there, and not being deleted: the
// collector would collect what a dead owner adopts.
func (o Owner) canAdopt(ctx context.Context) error {
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
