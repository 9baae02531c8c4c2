// Package deletion holds the rules of the API server's delete flow: what a DELETE does to
// one object. It is pure: object, options, strategy and time go in, a plan comes out.
// Package deleteflow executes the plan: it reads the object, decides, and writes in one
// storage transaction, so that nothing can happen between the check and the removal
// (R18):
//
//	transaction on the key:
//	  obj := the stored object
//	  switch plan := deletion.Decide(obj, options, strategy, now) {
//	  case Remove: delete obj, conditioned on the revision that was read; a kind that is
//	               deleted gracefully is marked before, in a transaction of its own
//	  case Mark:   plan.Apply(obj), write obj
//	  case Keep:   write nothing
//	  }
//	reply obj as the transaction left it, or deletion.Removed(obj, resource)
//
//	transaction of every other write:
//	  if deletion.Finished(new obj, strategy): delete obj instead
//
// Decide goes through the following steps, in this order:
//
//  1. The options are valid and their preconditions hold for this very object (R17).
//  2. The finalizer of the collector that the object gets: an explicit option
//     beats a finalizer of the object, which beats the kind's default (R17,
//     propagation.go). A repeated DELETE only removes finalizers (R19).
//  3. The grace period of the object, which only ever shrinks (R17, R19, grace.go).
//  4. Nothing to wait for: Remove. Otherwise Mark, or Keep when a repeated
//     DELETE changes nothing (R18).
//
// The same path serves every kind; a kind adds its Strategy. This package does
// not authorize, does not run admission, and does not read the clock or the
// storage.
package deletion

import (
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Strategy holds the rules specific to a kind. The zero value is for a kind whose objects are
// removed at once and whose dependents are deleted in the background.
type Strategy struct {
	// Resource names the kind in errors and answers.
	Resource schema.GroupResource

	// Grace returns how long the object may take to stop. requested is the option of the
	// DELETE, never negative, nil if it is not set. It is called once, by the DELETE that
	// marks the object. Nil: the kind is not deleted gracefully.
	Grace func(obj runtime.Object, requested *int64) (seconds int64, graceful bool)

	// DefaultPropagation is the policy for the dependents if neither the options nor a
	// finalizer state one. Empty: Background. Legacy group versions orphan, so it may
	// depend on the version of the request (AS-08).
	DefaultPropagation metav1.DeletionPropagation

	// OrphanDependentsFalse is the policy that the deprecated option orphanDependents=false
	// stands for. Empty: Background. Namespaces: Foreground (NS-24).
	OrphanDependentsFalse metav1.DeletionPropagation

	// Pending reports whether the object has to stay for a reason other than finalizers and
	// grace (namespaces: spec.finalizers). Nil: never.
	Pending func(obj runtime.Object) bool

	// OnMark changes the object in the write that marks it, and in no later one
	// (namespaces: status.phase=Terminating). Nil: nothing.
	OnMark func(obj runtime.Object)

	// RepeatedReplaces: a repeated DELETE replaces the collector's finalizer by the one of its
	// policy, as kube-apiserver does. Our server only removes it (R19); the tools set
	// RepeatedReplaces to predict other servers.
	RepeatedReplaces bool

	// CollectorDisabled: no collector would remove its finalizers, so none is
	// ever added, and existing ones are left alone. For a server without a
	// collector, and for kinds that the collector ignores (Events).
	CollectorDisabled bool
}

// Decide plans what a DELETE does to obj, which must be the object as stored at the time
// of the transaction. Nil options stand for an immediate deletion, as API server code
// that deletes on its own behalf expects. obj and options are not changed. The error, if
// any, is an API status.
func Decide(obj runtime.Object, options *metav1.DeleteOptions, s Strategy, now time.Time) (Plan, error) {
	object, err := meta.Accessor(obj)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("decide a deletion: %w", err))
	}
	if options == nil {
		options = metav1.NewDeleteOptions(0)
	}
	if err := Validate(options); err != nil {
		return nil, err
	}
	r := request{obj: obj, object: object, options: options, strategy: s, now: now}
	if err := r.checkPreconditions(); err != nil {
		return nil, err
	}
	if object.GetDeletionTimestamp() == nil {
		return r.first(), nil
	}
	return r.repeated()
}

// Validate checks the options themselves (R17). The error is an API status: for
// propagationPolicy together with orphanDependents, an unknown policy, an
// unknown dry run.
func Validate(options *metav1.DeleteOptions) error {
	return invalid(validation.ValidateDeleteOptions(options))
}

// Finished reports whether an object that is about to be written has nothing left to wait
// for: it is being deleted, and has no finalizers, no pending grace and no other reason
// to stay. It must then be removed instead of written, in the same transaction (R18).
func Finished(obj runtime.Object, s Strategy) bool {
	object, err := meta.Accessor(obj)
	if err != nil || object.GetDeletionTimestamp() == nil {
		return false
	}
	r := request{obj: obj, object: object, strategy: s}
	return r.nothingPending(object.GetFinalizers(), r.storedGrace())
}

// request is one DELETE of one object.
type request struct {
	obj      runtime.Object
	object   metav1.Object // the metadata of obj
	options  *metav1.DeleteOptions
	strategy Strategy
	now      time.Time
}

// first plans the DELETE of an object that is not being deleted yet.
func (r request) first() Plan {
	finalizers := r.firstFinalizers()
	grace, graceful := r.firstGrace()
	mark := Mark{
		First:              true,
		Finalizers:         finalizers,
		DeletionTimestamp:  metav1.NewTime(r.now.Add(seconds(grace))),
		GracePeriodSeconds: grace,
		onMark:             r.strategy.OnMark,
	}
	switch {
	case !r.nothingPending(finalizers, grace):
		return mark
	case graceful:
		return Remove{Reason: "nothing to wait for", MarkFirst: &mark}
	default:
		return Remove{Reason: "nothing to wait for"}
	}
}

// repeated plans the DELETE of an object that is already being deleted. It can only hasten the
// removal of the object (R19).
func (r request) repeated() (Plan, error) {
	finalizers, err := r.laterFinalizers()
	if err != nil {
		return nil, err
	}
	grace, timestamp := r.laterGrace()
	switch {
	case r.nothingPending(finalizers, grace):
		// This includes an object that a crash left marked with nothing to wait for (AS-03).
		return Remove{Reason: "nothing to wait for any more"}, nil
	case slices.Equal(finalizers, r.object.GetFinalizers()) &&
		grace == r.storedGrace() && timestamp.Equal(r.object.GetDeletionTimestamp()):
		return Keep{Reason: r.waitsFor(finalizers, grace)}, nil
	default:
		return Mark{Finalizers: finalizers, DeletionTimestamp: timestamp, GracePeriodSeconds: grace}, nil
	}
}

// nothingPending reports whether an object with these finalizers and this grace may go (R18).
func (r request) nothingPending(finalizers []string, grace int64) bool {
	return len(finalizers) == 0 && grace == 0 && (r.strategy.Pending == nil || !r.strategy.Pending(r.obj))
}

// waitsFor describes why an object stays.
func (r request) waitsFor(finalizers []string, grace int64) string {
	var reasons []string
	if len(finalizers) > 0 {
		reasons = append(reasons, "finalizers "+strings.Join(finalizers, ", "))
	}
	if grace > 0 {
		reasons = append(reasons, fmt.Sprintf("a grace period of %d s", grace))
	}
	if len(reasons) == 0 {
		reasons = append(reasons, "what its kind waits for")
	}
	return "already being deleted, waits for " + strings.Join(reasons, " and ")
}

// checkPreconditions compares the preconditions with the object of the
// transaction, never with a cached one (R17, AS-11).
func (r request) checkPreconditions() error {
	want := r.options.Preconditions
	if want == nil {
		return nil
	}
	if uid := r.object.GetUID(); want.UID != nil && *want.UID != uid {
		return r.conflict("uid", string(*want.UID), string(uid))
	}
	if version := r.object.GetResourceVersion(); want.ResourceVersion != nil && *want.ResourceVersion != version {
		return r.conflict("resourceVersion", *want.ResourceVersion, version)
	}
	return nil
}

func (r request) conflict(field, want, got string) error {
	return apierrors.NewConflict(r.strategy.Resource, r.object.GetName(),
		fmt.Errorf("precondition failed: %s in the precondition is %s, the object's is %s", field, want, got))
}

func invalid(errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "DeleteOptions"}, "", errs)
}
