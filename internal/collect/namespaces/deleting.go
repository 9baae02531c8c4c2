package namespaces

import (
	"cmp"
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/collect/pace"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
)

// attempt is a DELETE of an object.
type attempt struct {
	resource Resource
	object   Object
	// refusal is set if the server has refused it (R31).
	refusal *refusal.Refusal
}

// isProtected reports whether the DELETE was refused because the object is protected (R28).
func (a *attempt) isProtected() bool { return a.refusal != nil && a.refusal.By == refusal.ByProtection }

// deletion deletes the active objects of some types. After a request without an answer, no other one is sent before the
// namespace was read again: by then it may be active.
type deletion struct {
	contents

	namespace string
	found     []Content
	trust     *trust
}

// target is an object to delete.
type target struct {
	content  int // its type
	object   Object
	isTried  bool  // its DELETE has ended, and not because of its condition
	isSilent bool  // its DELETE got no answer
	err      error // of the last DELETE
}

// delete deletes the active objects of each type. It returns the first error of each type, without the refusals to
// delete protected objects, and the DELETEs of single objects that were answered. lost is the reason for which it has
// stopped before the end: the namespace is not the terminating one any more, or cannot be read.
func (c contents) delete(ctx context.Context, namespace string, found []Content, trust *trust) (errs []error, attempts []attempt, lost error) {
	d := deletion{c, namespace, found, trust}
	if lost = trust.confirm(ctx); lost != nil {
		return make([]error, len(found)), nil, lost
	}
	targets := targetsOf(found, d.deleteCollections(ctx))
	lost = d.deleteTargets(ctx, targets)
	errs, attempts = d.results(targets)
	if lost == nil {
		d.addUntried(errs, targets)
	}
	return errs, attempts, lost
}

// targetsOf returns the objects that no DELETECOLLECTION has deleted.
func targetsOf(found []Content, collected []bool) []*target {
	var targets []*target
	for i, content := range found {
		for _, object := range content.Active {
			if object.Labelled || !collected[i] {
				targets = append(targets, &target{content: i, object: object})
			}
		}
	}
	return targets
}

// deleteCollections deletes the types of which there are many objects. It reports which ones.
func (d deletion) deleteCollections(ctx context.Context) []bool {
	collected := make([]bool, len(d.found))
	d.each(ctx, len(d.found), func(i int) {
		if collectable(d.found[i]) && !d.trust.isLost() {
			ctx := d.trust.conditional(ctx)
			err := d.deleteCollection(ctx, d.namespace, d.found[i])
			collected[i] = cmp.Or(d.trust.note(ctx, err), err) == nil
		}
	})
	return collected
}

// deleteTargets deletes objects one by one. The objects that are left after a DELETE without an answer come next, when the
// trust is confirmed, without those of its type: the server of the type may be down.
func (d deletion) deleteTargets(ctx context.Context, targets []*target) error {
	for len(targets) > 0 {
		if err := cmp.Or(d.trust.confirm(ctx), ctx.Err()); err != nil {
			return err
		}
		d.each(ctx, len(targets), func(i int) {
			if !d.trust.isLost() {
				d.deleteTarget(ctx, targets[i])
			}
		})
		rest := untried(targets)
		if len(rest) == len(targets) {
			return ctx.Err() // this sync reports that, and the next one goes on
		}
		targets = rest
	}
	return nil
}

func (d deletion) deleteTarget(ctx context.Context, t *target) {
	ctx = d.trust.conditional(ctx)
	t.err = d.deleteObject(ctx, d.namespace, d.found[t.content].Resource, t.object)
	if unanswered := d.trust.note(ctx, t.err); unanswered != nil {
		t.err, t.isSilent = unanswered, true
	}
	t.isTried = !pace.IsNotSent(t.err)
}

// untried returns the targets that are left, without those of a type whose server has not answered.
func untried(targets []*target) []*target {
	silent := make(map[int]bool)
	for _, t := range targets {
		silent[t.content] = silent[t.content] || t.isSilent
	}
	var rest []*target
	for _, t := range targets {
		if !t.isTried && !silent[t.content] {
			rest = append(rest, t)
		}
	}
	return rest
}

// results returns what delete does, of the targets that were tried.
func (d deletion) results(targets []*target) (errs []error, attempts []attempt) {
	errs = make([]error, len(d.found))
	for _, t := range targets {
		if !t.isTried {
			continue
		}
		a := attempt{resource: d.found[t.content].Resource, object: t.object}
		if r, refused := refusal.Of(t.err); refused {
			a.refusal = &r
		}
		if t.err == nil || a.refusal != nil {
			attempts = append(attempts, a)
		}
		if t.err != nil && !a.isProtected() && errs[t.content] == nil {
			errs[t.content] = d.failure(t, t.err)
		}
	}
	return errs, attempts
}

// addUntried adds the errors of types of which no object was tried without success.
func (d deletion) addUntried(errs []error, targets []*target) {
	for _, t := range targets {
		if !t.isTried && errs[t.content] == nil {
			errs[t.content] = d.failure(t, cmp.Or(t.err, errDoubted))
		}
	}
}

func (d deletion) failure(t *target, err error) error {
	return fmt.Errorf("delete %s %s: %w", d.found[t.content].Resource.GroupResource(), t.object.Name, err)
}

// collectable reports whether a DELETECOLLECTION may delete a type's first page. It carries no UIDs and
// would also affect terminating and parked objects, so it is for pages of active objects only. Objects
// that are labelled as protected are not counted: they are deleted one by one.
func collectable(content Content) bool {
	return content.Resource.DeleteCollection && content.Deleting == 0 && len(content.Parked) == 0 &&
		len(content.Active)-content.labelled() >= manyObjects
}

// deleteCollection deletes a page, except for objects that are labelled as protected. After an error
// the objects are deleted one by one. The error is not remembered: a transient 404 or 405 must not
// change how the next namespace is treated (NS-09).
func (c contents) deleteCollection(ctx context.Context, namespace string, content Content) error {
	ctx, cancel := context.WithTimeout(ctx, collectionTimeout)
	defer cancel()
	options := metav1.ListOptions{Limit: pageSize}
	if content.labelled() > 0 {
		options.LabelSelector = "!" + protection.Label
	}
	return c.client.Resource(content.Resource.GroupVersionResource).Namespace(namespace).
		DeleteCollection(ctx, background(nil), options)
}

// deleteObject deletes the object with the UID that was listed, with a context of trust.conditional. It is not an error if the
// object or its type is gone, or another one has its name: the next list shows the current state.
func (c contents) deleteObject(ctx context.Context, namespace string, r Resource, object Object) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	err := c.client.Resource(r.GroupVersionResource).Namespace(namespace).
		Delete(ctx, object.Name, background(&metav1.Preconditions{UID: &object.UID}))
	if _, refused := refusal.Of(err); refused || deliveryOf(ctx).isUnanswered(err) {
		return err // a webhook may answer with any code, and so may a load balancer
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// background returns options that leave the grace period to the object. Its dependents in the
// namespace are deleted anyway.
func background(preconditions *metav1.Preconditions) metav1.DeleteOptions {
	policy := metav1.DeletePropagationBackground
	return metav1.DeleteOptions{PropagationPolicy: &policy, Preconditions: preconditions}
}
