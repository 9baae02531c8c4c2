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

// Owner is an object whose dependents a controller manages.
type Owner struct {
	metav1.Object
	Kind     schema.GroupVersionKind
	Selector labels.Selector
	// Match is an additional condition on dependents besides the selector, such as a certain
	// name; nil means no condition.
	Match func(metav1.Object) bool
	// Finalizer is added to an adopted dependent and removed from a released one; none if empty.
	Finalizer string
	// Live reads the object from the server, not from a cache.
	Live func(ctx context.Context) (metav1.Object, error)
}

// Reference returns the controller reference for the owner's dependents. A foreground deletion
// of the owner waits for them.
func (o Owner) Reference() *metav1.OwnerReference {
	return metav1.NewControllerRef(o.Object, o.Kind)
}

// relation is the relation of an object to an owner.
type relation int

// The relations. An owner that is being deleted neither adopts nor releases (R24).
const (
	unrelated  relation = iota // controlled by another owner, or by none and not to be adopted
	owned                      // controlled by the owner, and matched by its selector
	orphan                     // controlled by none, and matched: to be adopted
	mismatched                 // controlled by the owner, but no longer matched: to be released
)

// relationTo returns the relation of obj to the owner. Only controller references count.
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

// adopt returns the metadata patch that makes the owner an object's controller.
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

// canAdopt checks by a live read that the owner still exists and is not being deleted:
// otherwise the garbage collector would collect the adopted objects.
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
