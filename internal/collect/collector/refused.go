package collector

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
)

// ReasonRefused is the reason of the Events about an object that the server refuses to delete or to change (R31), and
// about the owners whose deletion waits for it.
const ReasonRefused = "GarbageCollectionRefused"

// refusedWrite is a write that the server has refused.
type refusedWrite struct {
	object  ownership.Object
	owners  []ownership.UID // whose deletion waits for the object
	action  report.Action
	refusal refusal.Refusal
	err     error
}

func (e refusedWrite) Error() string { return e.err.Error() }

// mayBeConflict reports whether the server may have refused the write because another object has the name now: the
// patch of another UID is invalid.
func (e refusedWrite) mayBeConflict() bool {
	return e.refusal.By == refusal.ByServer && apierrors.IsInvalid(e.err)
}

// refusedError means that an object waits for its back-off, or for a change that may lift the refusal. It does not wrap
// the answer: an owner that waits for this object must not be read again because of it.
type refusedError struct {
	ref     client.Ref
	uid     ownership.UID
	action  report.Action
	refusal refusal.Refusal
	after   time.Duration // 0: after the back-off
}

func (e refusedError) Error() string {
	if e.after > 0 {
		return fmt.Sprintf("%s was refused, and changes all the time", e.ref)
	}
	return fmt.Sprintf("%s of %s refused: %s", e.action, e.ref, e.refusal)
}

// waitingOwners returns the owners in foreground deletion that an object blocks.
func waitingOwners(f verdict.Facts) []ownership.UID {
	var owners []ownership.UID
	for _, o := range f.Owners {
		if o.Standing == verdict.Waiting && o.Reference.Blocking() {
			owners = append(owners, o.Reference.UID)
		}
	}
	return owners
}

// refuse records a refused write. The first one is logged; Events report the lasting ones.
func (c *Collector) refuse(ctx context.Context, e refusedWrite) error {
	parked := refusedError{ref: client.RefOf(e.object), uid: e.object.UID, action: e.action, refusal: e.refusal}
	isNew, due := c.state.refuse(e.object, e.action, e.refusal, e.owners...)
	if isNew {
		c.log.WarnContext(ctx, "refused", "object", parked.ref.String(), "uid", string(e.object.UID), "action", string(e.action),
			"by", string(e.refusal.By), "reason", e.refusal.String())
	}
	message := fmt.Sprintf("the garbage collector cannot %s: %s", phraseOf(e.action), e.refusal)
	for _, o := range due {
		if o.UID == e.object.UID {
			c.warn(ctx, o, ReasonRefused, message)
		} else {
			c.warn(ctx, o, ReasonRefused, fmt.Sprintf("its deletion waits for %s: %s", parked.ref, message))
		}
	}
	return parked
}

// phraseOf returns what an action does with an object.
func phraseOf(action report.Action) string {
	switch action {
	case report.ActionDelete:
		return "delete it"
	case report.ActionDetach, report.ActionOrphan:
		return "detach it from its owners"
	case report.ActionUnblock:
		return "stop it from blocking its owners"
	case report.ActionRemoveFinalizer:
		return "remove its finalizer"
	case report.ActionDeleteInstances: // by the server
	}
	return string(action)
}

// refuse records a refused request about an object. It returns the objects about which an Event is due: this one, and
// the owners that wait for it.
func (s *state) refuse(o ownership.Object, action report.Action, r refusal.Refusal, owners ...ownership.UID) (isNew bool, due []ownership.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.graph.Object(o.UID); !known {
		return false, nil
	}
	now := s.clock.Now()
	isNew = s.refused.Add(o, action, r, now)
	if s.stories != nil {
		s.stories.Refused(&o, s.homes.at(o.Namespace, o.ResourceVersion), r, now)
	}
	if r.By == refusal.ByProtection || !s.refused.IsLasting(o.UID, r, now) {
		return isNew, nil
	}
	for _, uid := range append([]ownership.UID{o.UID}, owners...) {
		if about, known := s.graph.Object(uid); known && s.refused.Tell(uid, r, now) {
			due = append(due, about)
		}
	}
	return isNew, due
}

// accepted records that a request about an object was accepted.
func (s *state) accepted(uid ownership.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lift(uid, false)
}

// lift forgets the refusal of an object, which stays if no request is needed any longer. The caller holds mu.
func (s *state) lift(uid ownership.UID, stays bool) {
	if s.refused.Has(uid) && s.stories != nil {
		s.stories.RefusalEnded(uid, stays, s.clock.Now())
	}
	s.refused.Remove(uid)
}

// decided forgets the refusal of an object if no request is needed now. The detachment from an owner that is being
// orphaned is a decision about the owner.
func (s *state) decided(o ownership.Object, d verdict.Decision) {
	switch d.(type) {
	case verdict.Keep, verdict.Park, verdict.Await:
	case verdict.Verify, verdict.Reread, verdict.Detach, verdict.Unblock, verdict.Delete, verdict.Disown, verdict.RemoveFinalizer:
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.refused.Has(o.UID) {
		return
	}
	for _, r := range o.Owners {
		if owner, known := s.graph.Object(r.UID); known && owner.Phase == ownership.Orphaning {
			return
		}
	}
	s.lift(o.UID, o.Phase == ownership.Active)
}

// checkRefused returns an error if no request is sent now: one was refused, and the object changes all the time.
func (c *Collector) checkRefused(self ownership.Object) error {
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	if wait := c.state.refused.Wait(self.UID, self.ResourceVersion, c.clock.Now()); wait > 0 {
		return refusedError{ref: client.RefOf(self), uid: self.UID, after: wait}
	}
	return nil
}

// refusers returns the refusers that an object of a kind may change.
func refusers(kind ownership.Kind) []refusal.By {
	switch kind.Group {
	case "admissionregistration.k8s.io":
		return []refusal.By{refusal.ByPolicy, refusal.ByMutatingPolicy, refusal.ByWebhook, refusal.ByUnreachableWebhook}
	case "apiextensions.k8s.io":
		return []refusal.By{refusal.ByConversion}
	case "rbac.authorization.k8s.io":
		return []refusal.By{refusal.ByRBAC}
	}
	if kind == (ownership.Kind{Kind: "ResourceQuota"}) {
		return []refusal.By{refusal.ByQuota}
	}
	return nil
}

// retryInterval bounds how often changes of refusers end the back-off of the objects that they refuse. Within it, the
// back-off is not longer than the interval.
const retryInterval = 10 * time.Second

// retryRefused ends the back-off of the objects that a changed refuser may let go. The server notices the change
// a moment later than the collector: the first retry alone would be too early.
func (s *state) retryRefused(changed ownership.Kind) {
	by := refusers(changed)
	if len(by) == 0 {
		return
	}
	defer s.changes.call(by)
	s.mu.Lock()
	uids := s.refused.Of(by...)
	now := s.clock.Now()
	s.refused.Changed(now, by...)
	if len(uids) > 0 && now.Sub(s.retried[by[0]]) < retryInterval {
		uids = nil
	}
	if len(uids) > 0 {
		s.retried[by[0]] = now
	}
	s.mu.Unlock()
	for _, uid := range uids {
		s.queue.Forget(uid)
	}
	s.queue.Add(uids...)
}

// stays reports whether the server refuses a request about an object until somebody acts, as far as is known.
func (s *state) stays(uid ownership.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused.Stays(uid)
}

// refusals returns the refused objects, and their number by kind and refuser.
func (s *state) refusals() ([]report.RefusedObject, []report.RefusedCount) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused.Status()
}
