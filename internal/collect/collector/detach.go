package collector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/collect/pace"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
)

// disown detaches all dependents from an owner that is being orphaned (R13). Afterwards the owner
// is reconsidered: if it has no dependents left, its finalizer is removed, else disown runs
// again. In another epoch it stops: a restored backup may have undone the deletion of the owner (R4).
func (c *Collector) disown(ctx context.Context, epoch int, owner ownership.Object, d verdict.Disown) error {
	c.logIdle(ctx, owner, d)
	p := c.places.passOf(ctx)
	err := pace.Each(c.config.Workers, p.ordered(d.Dependents), func(uid ownership.UID) error {
		if p.skips(uid, c.state, c.clock.Now()) {
			return nil
		}
		dependent, known := c.state.object(uid)
		if !known {
			p.succeeds(uid)
			return nil
		}
		if err := c.config.Await(ctx); err != nil {
			return err
		}
		if c.state.Epoch() != epoch {
			return errNewEpoch // before a dependent is read: the new epoch may have other ones
		}
		p.note(dependent, c.detachInTurn(ctx, epoch, owner, dependent), c.clock.Now())
		return nil
	})
	if err == nil {
		err = p.end(c.clock.Now())
	}
	if err != nil {
		// The owner keeps its finalizer: a dependent that is not detached would
		// be collected when the owner goes.
		return fmt.Errorf("detach dependents of %s: %w", client.RefOf(owner), err)
	}
	c.queue.Add(owner.UID)
	return nil
}

// failedAgain is how long after a failure a dependent is tried again in the same pass.
const failedAgain = time.Minute

// explained bounds the refusals, and the other failures, whose errors a pass keeps. Their texts may be long, and an owner may have
// millions of dependents.
const explained = 32

// pass tries to detach each dependent of an owner. That takes several decisions if a kind is slow, and others need its places,
// too: each of them sends a part of the requests. It is safe for concurrent use.
type pass struct {
	mu     sync.Mutex
	failed map[ownership.UID]time.Time // when dependents could not be detached; guarded by mu, and so is all below
	why    map[ownership.UID]error     // the errors of some of them
	logged time.Time                   // when a failure was logged for the last time
	// Why the pass goes on after this decision: the kinds without a place or a turn for it, or other lists that are held.
	over map[group]error
	busy error
}

// failure is why a dependent could not be detached.
type failure struct {
	at  time.Time
	err error
}

// errUnexplained is the error of a pass in which only dependents have failed whose errors it has not kept.
var errUnexplained = errors.New("the requests for some dependents have failed")

// unfinishedError is the error of a dependent in a pass that goes on.
type unfinishedError struct {
	err   error
	after time.Duration // the dependent is tried again
	isNew bool          // none was logged for a while
}

func (e unfinishedError) Error() string { return e.err.Error() }

func (e unfinishedError) Unwrap() error { return e.err }

func newPass() *pass {
	return &pass{failed: make(map[ownership.UID]time.Time), why: make(map[ownership.UID]error), over: make(map[group]error)}
}

// ordered sorts the dependents by the time of their failure, and those without one come first. Dependents that always fail would
// otherwise use up the few requests of each decision. It forgets the failures of objects that are no dependents any more.
func (p *pass) ordered(dependents []ownership.UID) []ownership.UID {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.failed) == 0 {
		return dependents
	}
	failed := make(map[ownership.UID]time.Time, len(p.failed))
	others := slices.DeleteFunc(slices.Clone(dependents), func(uid ownership.UID) bool {
		at, hasFailed := p.failed[uid]
		if hasFailed {
			failed[uid] = at
		}
		return hasFailed
	})
	p.failed = failed
	maps.DeleteFunc(p.why, func(uid ownership.UID, _ error) bool {
		_, hasFailed := failed[uid]
		return !hasFailed
	})
	return append(others, slices.SortedFunc(maps.Keys(failed), func(a, b ownership.UID) int {
		return cmp.Or(failed[a].Compare(failed[b]), cmp.Compare(a, b))
	})...)
}

// skips reports whether a decision does not try to detach a dependent: it has failed just now, or its kind is over.
func (p *pass) skips(uid ownership.UID, s *state, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at, failed := p.failed[uid]; failed && now.Sub(at) < failedAgain {
		return true
	}
	if len(p.over) == 0 {
		return false
	}
	kind, isObserved := s.kind(uid)
	if !isObserved {
		return true
	}
	inPart, whole := p.over[group{kind, false}] != nil, p.over[group{kind, true}] != nil
	if inPart == whole {
		return whole
	}
	dependent, known := s.object(uid)
	return !known || p.over[groupOfDependent(dependent)] != nil
}

// note records how the attempt to detach a dependent ended.
func (p *pass) note(dependent ownership.Object, err error, now time.Time) {
	if err == nil {
		p.succeeds(dependent.UID)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_, isBusy := errors.AsType[busyError](err)
	switch {
	case isBusy:
		p.busy = err
	case hasNoPlace(err):
		p.over[groupOfDependent(dependent)] = err
	default:
		p.failsLocked(dependent.UID, err, now)
	}
}

// failsLocked records that a dependent could not be detached.
func (p *pass) failsLocked(uid ownership.UID, err error, now time.Time) {
	p.failed[uid] = now
	delete(p.why, uid)
	alike := 0
	for _, other := range p.why {
		if isRefusal(other) == isRefusal(err) {
			alike++
		}
	}
	if alike < explained {
		p.why[uid] = err
	}
}

func isRefusal(err error) bool {
	_, is := errors.AsType[refusedError](err)
	return is
}

// succeeds records that a dependent is detached, or gone.
func (p *pass) succeeds(uid ownership.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.failed, uid)
	delete(p.why, uid)
}

// goesOn reports whether another decision continues the pass.
func (p *pass) goesOn() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.over) > 0 || p.busy != nil
}

// end returns the error of a decision. If the pass goes on, it is an unfinishedError, a busyError or a noPlaceError.
func (p *pass) end(now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.busy != nil:
		return p.busy
	case len(p.over) == 0:
		return p.firstLocked(time.Time{}).err
	}
	if first := p.firstLocked(now.Add(-failedAgain)); first.err != nil {
		isNew := now.Sub(p.logged) >= failedAgain
		if isNew {
			p.logged = now
		}
		return unfinishedError{first.err, first.at.Add(failedAgain).Sub(now), isNew}
	}
	// Older failures are of the same kinds: a decision tries all others again before it ends.
	for _, err := range p.over {
		return err
	}
	return nil
}

// firstLocked returns the first failure after a time, of those that are explained; a refusal only if there is no other one.
func (p *pass) firstLocked(after time.Time) (first failure) {
	for uid, err := range p.why {
		f := failure{p.failed[uid], err}
		switch {
		case !f.at.After(after):
		case first.err == nil, isRefusal(first.err) && !isRefusal(err), isRefusal(first.err) == isRefusal(err) && f.at.Before(first.at):
			first = f
		}
	}
	if first.err != nil {
		return first
	}
	for _, at := range p.failed {
		if at.After(after) && (first.err == nil || at.Before(first.at)) {
			first = failure{at, errUnexplained}
		}
	}
	return first
}

// next begins another decision of the same pass.
func (p *pass) next() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.over)
	p.busy = nil
}

// groupOfDependent returns the group of the requests that detach a dependent.
func groupOfDependent(dependent ownership.Object) group {
	return group{dependent.Kind, dependent.MoreOwners > 0}
}

// detachInTurn is detach, in one of the turns that the owner has for the kind of the dependent.
func (c *Collector) detachInTurn(ctx context.Context, epoch int, owner, dependent ownership.Object) error {
	if dependent.MoreOwners > 0 {
		ctx = holdingWhole(ctx)
	}
	for {
		end, err := c.places.turn(ctx, dependent.Kind)
		if err != nil {
			return err
		}
		err = c.untilCurrent(ctx, func() (ownership.Object, error) { return c.detach(ctx, epoch, owner, dependent.UID) })
		end()
		if none, is := errors.AsType[noPlaceError](err); !is || none.why != turnIsTaken {
			return err
		}
	}
}

// detach removes the references of one dependent to an owner, whose deletion was observed in an epoch.
func (c *Collector) detach(ctx context.Context, epoch int, owner ownership.Object, uid ownership.UID) (ownership.Object, error) {
	dependent, known := c.state.object(uid)
	if !known {
		return dependent, nil
	}
	if dependent.MoreOwners > 0 {
		end, err := c.beginWhole(ctx)
		if err != nil {
			return dependent, err
		}
		defer end()
		now, same, err := c.readAgain(ctx, dependent)
		if err != nil || !same {
			return dependent, err
		}
		dependent = now
	}
	remaining := slices.DeleteFunc(slices.Clone(dependent.Owners), func(r ownership.Reference) bool { return r.UID == owner.UID })
	if len(remaining) == len(dependent.Owners) {
		return dependent, nil
	}
	record := c.recordOfOrphan(dependent, owner)
	now, err := c.api.PatchOwners(c.inEpoch(ctx, epoch), dependent, remaining)
	isKept := err == nil && slices.ContainsFunc(now.Owners, func(r ownership.Reference) bool { return r.UID == owner.UID })
	if isKept {
		c.state.refresh(epoch, now)
		return dependent, fmt.Errorf("the server has kept the reference of %s to %s", client.RefOf(dependent), client.RefOf(owner))
	}
	c.record(record, err)
	switch refused, isRefused := refusal.Of(err); {
	case err == nil:
		c.state.refresh(epoch, now)
		c.log.InfoContext(ctx, "orphaned", "object", client.RefOf(dependent).String(), "owner", client.RefOf(owner).String())
		return dependent, nil
	case isRefused:
		return dependent, refusedWrite{dependent, []ownership.UID{owner.UID}, record.Action, refused, err}
	case apierrors.IsNotFound(err):
		// This does not wait for the DELETED event (see goneAlready): the owner waits for
		// every dependent that the graph knows.
		c.state.vanish(uid)
		return dependent, nil
	default:
		return dependent, fmt.Errorf("write owner references of %s: %w", client.RefOf(dependent), err)
	}
}
