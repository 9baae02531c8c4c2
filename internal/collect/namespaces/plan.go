package namespaces

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// Resource is a resource type whose objects live in namespaces and can be listed and deleted.
type Resource struct {
	schema.GroupVersionResource
	// Kind is the kind of its objects; reports name it.
	Kind string
	// DeleteCollection reports whether the server can delete all objects of a namespace in one
	// request.
	DeleteCollection bool
}

// Object identifies one object of a resource type in the namespace.
type Object struct {
	Name string
	UID  types.UID
	// Version is the resourceVersion that was listed.
	Version string
	// Labelled means that the object has the label of protected objects (R28).
	Labelled bool
}

// Content is the result of listing one resource type in the namespace.
type Content struct {
	Resource Resource
	// Remaining counts the objects that exist, the ones being deleted included.
	Remaining int
	// Deleting counts the terminating ones among them. They are not deleted again.
	Deleting int
	// Active are the objects to delete, up to the number that one sync deletes: the objects that are
	// neither terminating nor parked.
	Active []Object
	// Parked are the objects whose deletion was refused because they are protected, and must not be
	// tried again yet (R28).
	Parked []Parked
	// Finalizers counts the objects that carry a finalizer, by finalizer.
	Finalizers map[string]int
	// Err is the error of the list. A type that cannot be listed counts as present.
	Err error
}

// Parked is an object whose deletion was refused, with the message of the refusal.
type Parked struct {
	Name    string
	Message string
}

// add counts one listed object. held returns whether, and why, it must not be deleted yet; it may be
// nil.
func (c *Content) add(object metav1.Object, held func(Object) (message string, parked bool)) {
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
	_, labelled := object.GetLabels()[protection.Label]
	active := Object{Name: object.GetName(), UID: object.GetUID(), Version: object.GetResourceVersion(), Labelled: labelled}
	if held != nil {
		if message, parked := held(active); parked {
			c.Parked = append(c.Parked, Parked{active.Name, message})
			return
		}
	}
	c.Active = append(c.Active, active)
}

// labelled returns how many of the active objects are labelled as protected.
func (c *Content) labelled() (n int) {
	for _, o := range c.Active {
		if o.Labelled {
			n++
		}
	}
	return n
}

// Survey has one sync's knowledge of the contents of a namespace, and of their deletions. The zero
// value is empty.
type Survey struct {
	// Resources are the types to list, in a fixed order.
	Resources []Resource
	// Order assigns them to stages.
	Order Order
	// Discovery is the error that names the types missing in Resources; nil if no type is missing.
	Discovery error

	contents map[Resource]Content // as last listed
	failures map[Resource]error   // of DELETEs in this sync
	swept    map[Resource]int     // types whose objects were deleted in this sync, and how many there were before
}

// Record adds the results of lists.
func (s *Survey) Record(contents []Content) {
	if s.contents == nil {
		s.contents = map[Resource]Content{}
	}
	for _, c := range contents {
		s.contents[c.Resource] = c
	}
}

// Sweep records that the objects of a type were deleted, with the first error, if any. The type is
// to be listed again: only a list shows that the objects are gone.
func (s *Survey) Sweep(r Resource, err error) {
	if s.swept == nil {
		s.swept, s.failures = map[Resource]int{}, map[Resource]error{}
	}
	s.swept[r] = s.contents[r].Remaining
	delete(s.contents, r)
	if err != nil {
		s.failures[r] = err
	}
}

// Step is the next step for a terminating namespace: one of the types below. After Read and Delete,
// Next is called again; the others end the sync.
//
//sumtype:decl
type Step interface{ step() }

type (
	// Read lists the objects of these types.
	Read struct{ Resources []Resource }
	// Delete deletes the active objects of these types, all of one stage.
	Delete struct {
		Stage    Stage
		Contents []Content
	}
	// Verify requests another sync at once. The namespace is empty, but objects had to be deleted; an
	// object whose creation had passed admission before the namespace was marked shows only in lists
	// that begin after the last object was gone (R21).
	Verify struct{}
	// Wait ends the sync with objects left. Stage, Remaining and Deleting measure its progress.
	Wait struct {
		Stage     Stage
		Remaining int
		Deleting  int
		Parked    int
		Refused   int // that the server refuses to delete until somebody acts (R31)
		Removed   int // objects that were there when this sync began to delete
		Reason    string
	}
	// Finalize removes our finalizer: the namespace is empty (R22).
	Finalize struct{}
)

func (Read) step()     {}
func (Delete) step()   {}
func (Verify) step()   {}
func (Wait) step()     {}
func (Finalize) step() {}

// objectsRemain is the Reason of a Wait for objects that were all listed.
const objectsRemain = "objects remain"

// held reports whether all remaining objects are being deleted already, are protected, or may not be
// deleted: other controllers or users have to act.
func (w Wait) held() bool {
	return w.Reason == objectsRemain && w.Remaining == w.Deleting+w.Parked+w.Refused
}

// lacks reports whether objects are gone since the sync before, or in this one.
func (w Wait) lacks(before Wait) bool {
	isFirst := before.Reason == ""
	return w.Removed > 0 || !isFirst && (w.Stage > before.Stage || w.Stage == before.Stage && w.Remaining < before.Remaining)
}

// Progressed reports whether a sync made more progress than the one before it.
func (w Wait) Progressed(before Wait) bool {
	return w.Stage > before.Stage ||
		w.Stage == before.Stage && (w.Remaining < before.Remaining || w.Deleting > before.Deleting)
}

// Next decides the next step. Stage by stage (R22) it lists the types that were not listed, deletes
// the active objects, and stops at the first stage that is not empty then. Within a stage no type
// waits for another.
func Next(s *Survey) Step {
	for stage := range s.Order.end() {
		if step := s.next(stage); step != nil {
			return step
		}
	}
	switch {
	case s.hides():
		// Fail closed: a type that discovery does not include may have objects here.
		return Wait{Stage: s.Order.end(), Reason: "not all resource types are known"}
	case len(s.swept) > 0:
		return Verify{}
	default:
		return Finalize{}
	}
}

// next decides the next step in one stage; it returns nil if the stage is empty.
func (s *Survey) next(stage Stage) Step {
	var unread []Resource
	var active []Content
	wait := Wait{Stage: stage}
	for _, r := range s.Resources {
		if s.Order.StageOf(r.GroupResource()) != stage {
			continue
		}
		content, read := s.contents[r]
		before, swept := s.swept[r]
		switch {
		case !read:
			unread = append(unread, r)
		case len(content.Active) > 0 && !swept:
			active = append(active, content)
		case content.Err != nil:
			wait.Reason = fmt.Sprintf("cannot list %s", r.GroupResource())
		}
		wait.Remaining += content.Remaining
		wait.Deleting += content.Deleting
		wait.Parked += len(content.Parked)
		wait.Removed += max(0, before-content.Remaining)
	}
	switch {
	case len(unread) > 0:
		return Read{unread}
	case len(active) > 0:
		return Delete{stage, active}
	case wait.Reason != "":
		return wait
	case wait.Remaining > 0:
		wait.Reason = objectsRemain
		return wait
	case s.hidesIn(stage):
		wait.Reason = "not all resource types of this stage are known"
		return wait
	default:
		return nil
	}
}

// hides reports whether there may be types that discovery has never returned.
func (s *Survey) hides() bool {
	var incomplete *Incomplete
	if !errors.As(s.Discovery, &incomplete) {
		return s.Discovery != nil
	}
	return incomplete.hides()
}

// hidesIn reports whether a resource that the stage names may be among the types missing in
// discovery. Any other missing group only delays the end of the namespace.
func (s *Survey) hidesIn(stage Stage) bool {
	var incomplete *Incomplete
	if !errors.As(s.Discovery, &incomplete) {
		return s.Discovery != nil
	}
	return slices.ContainsFunc(s.Order.all()[stage], func(r schema.GroupResource) bool { return incomplete.hidesGroup(r.Group) })
}

// Pending reports whether the namespace is being deleted and its contents are still to be deleted by
// this controller. Without our finalizer the contents are deleted already, or a user has decided to
// keep them (NS-01).
func Pending(ns *corev1.Namespace) bool {
	return ns.DeletionTimestamp != nil && slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes)
}

// withoutOurs returns spec.finalizers without our finalizer; the others stay (NS-02).
func withoutOurs(finalizers []corev1.FinalizerName) []corev1.FinalizerName {
	return slices.DeleteFunc(slices.Clone(finalizers), func(f corev1.FinalizerName) bool {
		return f == corev1.FinalizerKubernetes
	})
}
