package deletion

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Plan is the effect of a DELETE on an object: one of Remove, Mark and Keep.
//
//sumtype:decl
type Plan interface {
	plan()
	// String describes the plan, for logs.
	String() string
}

type (
	// Remove takes the object out of the storage now.
	Remove struct {
		Reason string
		// MarkFirst, if not nil, is written before, in a transaction of its own, so that
		// watchers see the mark: the object's kind is deleted gracefully, and its grace is 0.
		// Callers that need only the outcome may ignore it.
		MarkFirst *Mark
	}

	// Mark writes the object as being deleted, and lets it stay (R18).
	Mark struct {
		// First: the object was not being deleted before. Its generation is incremented and
		// Strategy.OnMark runs; a later DELETE does neither.
		First bool
		// Finalizers is the whole list to write. Foreign finalizers keep their order.
		Finalizers []string
		// DeletionTimestamp is when the grace period ends; now, without grace.
		DeletionTimestamp metav1.Time
		// GracePeriodSeconds counts from the first DELETE.
		GracePeriodSeconds int64

		onMark func(runtime.Object)
	}

	// Keep writes nothing: the object is already being deleted, and this DELETE changes nothing
	// about it.
	Keep struct {
		Reason string
	}
)

func (Remove) plan() {}
func (Mark) plan()   {}
func (Keep) plan()   {}

func (p Remove) String() string { return "remove: " + p.Reason }

func (p Mark) String() string {
	what := "mark again"
	if p.First {
		what = "mark"
	}
	return fmt.Sprintf("%s: grace %d s, finalizers %v", what, p.GracePeriodSeconds, p.Finalizers)
}

func (p Keep) String() string { return "keep: " + p.Reason }

// Apply makes the changes of the plan to the object that it was decided on.
func (p Mark) Apply(obj runtime.Object) error {
	object, err := meta.Accessor(obj)
	if err != nil {
		return fmt.Errorf("mark as being deleted: %w", err)
	}
	object.SetFinalizers(p.Finalizers)
	object.SetDeletionTimestamp(&p.DeletionTimestamp)
	object.SetDeletionGracePeriodSeconds(&p.GracePeriodSeconds)
	if !p.First {
		return nil
	}
	// Controllers treat an object that is being deleted differently, so to them
	// its desired state has changed. Kinds without a generation have 0.
	if generation := object.GetGeneration(); generation > 0 {
		object.SetGeneration(generation + 1)
	}
	if p.onMark != nil {
		p.onMark(obj)
	}
	return nil
}

// Removed returns the response to the client whose DELETE has removed an object (R20): a
// Status with the uid. As long as an object stays, the response is the object. obj is the
// last state of the object, with the resourceVersion of the removal.
func Removed(obj runtime.Object, resource schema.GroupResource) (*metav1.Status, error) {
	object, err := meta.Accessor(obj)
	if err != nil {
		return nil, fmt.Errorf("answer the deletion of %s: %w", resource, err)
	}
	return &metav1.Status{
		// The revision at which the object was removed, so that a client can wait until its
		// watch has seen it.
		ListMeta: metav1.ListMeta{ResourceVersion: object.GetResourceVersion()},
		Status:   metav1.StatusSuccess,
		Details: &metav1.StatusDetails{
			Name:  object.GetName(),
			Group: resource.Group,
			Kind:  resource.Resource, // the plural, as clients know it from upstream
			UID:   object.GetUID(),
		},
	}, nil
}
