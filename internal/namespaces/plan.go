package namespaces

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Resource is a resource type whose objects live in namespaces and can be listed and deleted.
type Resource struct {
	schema.GroupVersionResource
	// DeleteCollection: the server says that it can delete all of them in one request.
	DeleteCollection bool
}

// Object identifies one object of a resource type in the namespace.
type Object struct {
	Name string
	UID  types.UID
}

// Content is what a list showed of one resource type in the namespace.
type Content struct {
	Resource Resource
	// Remaining counts the objects that exist, the ones being deleted included.
	Remaining int
	// Deleting counts those that are seen to be deleted already. They are not deleted again.
	Deleting int
	// Active are those that nobody has deleted yet, up to the share of one pass.
	Active []Object
	// Finalizers counts the objects that carry a finalizer, by finalizer.
	Finalizers map[string]int
	// Err says that they could not be read. What cannot be read counts as present.
	Err error
}

// add takes in one listed object.
func (c *Content) add(object metav1.Object) {
	c.Remaining++
	for _, finalizer := range object.GetFinalizers() {
		if c.Finalizers == nil {
			c.Finalizers = map[string]int{}
		}
		c.Finalizers[finalizer]++
	}
	if object.GetDeletionTimestamp() != nil {
		c.Deleting++
		return
	}
	c.Active = append(c.Active, Object{Name: object.GetName(), UID: object.GetUID()})
}

// Survey is what one pass has found out about the contents of a namespace, and
// done about them, so far. The zero value is a survey that knows nothing.
type Survey struct {
	// Resources are the types to look at, in a fixed order.
	Resources []Resource
	// Order says which of them go first.
	Order Order
	// Discovery says which types are missing in Resources; nil when none is.
	Discovery error

	contents map[Resource]Content // as last read
	failures map[Resource]error   // of DELETEs in this pass
	swept    map[Resource]bool    // types of which objects were deleted in this pass
}

// Record takes in what a list showed.
func (s *Survey) Record(contents []Content) {
	if s.contents == nil {
		s.contents = map[Resource]Content{}
	}
	for _, c := range contents {
		s.contents[c.Resource] = c
	}
}

// Sweep takes in that objects of a type were deleted, and the first error in
// that, if any. The type is to be read again: only a list shows that they are gone.
func (s *Survey) Sweep(r Resource, err error) {
	if s.swept == nil {
		s.swept, s.failures = map[Resource]bool{}, map[Resource]error{}
	}
	s.swept[r] = true
	delete(s.contents, r)
	if err != nil {
		s.failures[r] = err
	}
}

// Step is what to do next about a terminating namespace: one of the types
// below. Read and Delete are carried out and followed by the question for the
// next step; the others end the pass.
//
//sumtype:decl
type Step interface{ step() }

type (
	// Read lists the objects of these types.
	Read struct{ Resources []Resource }
	// Delete deletes the active objects of these types, all of one wave.
	Delete struct {
		Wave     Wave
		Contents []Content
	}
	// Verify asks for another pass at once. Nothing is left, but it took
	// deletions; what came in beside them, through a create that had passed
	// admission before the namespace was marked, shows only in lists that begin
	// after the last object was gone (R21).
	Verify struct{}
	// Wait ends the pass with something left. Wave, Remaining and Deleting
	// measure how far it has come.
	Wait struct {
		Wave      Wave
		Remaining int
		Deleting  int
		Reason    string
	}
	// Finalize removes our token from spec.finalizers: the namespace is empty (R22).
	Finalize struct{}
)

func (Read) step()     {}
func (Delete) step()   {}
func (Verify) step()   {}
func (Wait) step()     {}
func (Finalize) step() {}

// Progressed tells whether a pass came further than the one before it.
func (w Wait) Progressed(before Wait) bool {
	return w.Wave > before.Wave ||
		w.Wave == before.Wave && (w.Remaining < before.Remaining || w.Deleting > before.Deleting)
}

// Next decides the next step. Wave after wave (R22): read what was not read,
// delete what is active, stop at the first wave that is not empty then. Within
// a wave no type waits for another.
func Next(s *Survey) Step {
	for wave := range s.Order.end() {
		if step := s.next(wave); step != nil {
			return step
		}
	}
	switch {
	case s.hides():
		// Fail closed: a type that nobody can name may have objects here.
		return Wait{Wave: s.Order.end(), Reason: "cannot name all resource types"}
	case len(s.swept) > 0:
		return Verify{}
	default:
		return Finalize{}
	}
}

// next decides the next step in one wave; nil when the wave is over.
func (s *Survey) next(wave Wave) Step {
	var unread []Resource
	var active []Content
	wait := Wait{Wave: wave}
	for _, r := range s.Resources {
		if s.Order.WaveOf(r.GroupResource()) != wave {
			continue
		}
		content, read := s.contents[r]
		switch {
		case !read:
			unread = append(unread, r)
		case len(content.Active) > 0 && !s.swept[r]:
			active = append(active, content)
		case content.Err != nil:
			wait.Reason = fmt.Sprintf("cannot read %s", r.GroupResource())
		}
		wait.Remaining += content.Remaining
		wait.Deleting += content.Deleting
	}
	switch {
	case len(unread) > 0:
		return Read{unread}
	case len(active) > 0:
		return Delete{wave, active}
	case wait.Reason != "":
		return wait
	case wait.Remaining > 0:
		wait.Reason = "objects remain"
		return wait
	case s.hidesIn(wave):
		wait.Reason = "cannot tell whether objects of this wave remain"
		return wait
	default:
		return nil
	}
}

// hides tells whether there may be types that nobody has named.
func (s *Survey) hides() bool {
	var incomplete *Incomplete
	if !errors.As(s.Discovery, &incomplete) {
		return s.Discovery != nil
	}
	return incomplete.hides()
}

// hidesIn tells whether types that the wave names may be among those that discovery
// could not name. Any other group that is missing holds the end of the namespace only.
func (s *Survey) hidesIn(wave Wave) bool {
	var incomplete *Incomplete
	if !errors.As(s.Discovery, &incomplete) {
		return s.Discovery != nil
	}
	return slices.ContainsFunc(s.Order.all()[wave], func(r schema.GroupResource) bool { return incomplete.hidesGroup(r.Group) })
}

// Pending tells whether the namespace is being deleted and its contents are
// still ours to remove. A namespace without our token in spec.finalizers is
// either done or was taken out of our hands (NS-01).
func Pending(ns *corev1.Namespace) bool {
	return ns.DeletionTimestamp != nil && slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes)
}

// withoutToken is the list of spec.finalizers after we are done: only our token goes (NS-02).
func withoutToken(finalizers []corev1.FinalizerName) []corev1.FinalizerName {
	return slices.DeleteFunc(slices.Clone(finalizers), func(f corev1.FinalizerName) bool {
		return f == corev1.FinalizerKubernetes
	})
}
