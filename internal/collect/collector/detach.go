package collector

import (
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
	err := pace.Each(c.config.Workers, d.Dependents, func(uid ownership.UID) error {
		if p.skips(uid, c.state) {
			return nil
		}
		dependent, known := c.state.object(uid)
		if !known {
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

// pass tries to detach each dependent of an owner. That takes several decisions if a kind is slow, and others need its places,
// too: each of them sends a part of the requests. It is safe for concurrent use.
type pass struct {
	mu      sync.Mutex
	failed  map[ownership.UID]time.Time // when a dependent could not be detached; guarded by mu, and so is all below
	refused *refusedError               // of one dependent; any other error counts more
	err     error                       // of one dependent
	due     time.Time                   // the owner comes back then, to try them again
	over    map[group]error             // the kinds without a place or a turn for this decision: the pass goes on in the next one
}

// unfinishedError is the error of a dependent in a pass that goes on.
type unfinishedError struct{ err error }

func (e unfinishedError) Error() string { return e.err.Error() }

func (e unfinishedError) Unwrap() error { return e.err }

func newPass() *pass {
	return &pass{failed: make(map[ownership.UID]time.Time), over: make(map[group]error)}
}

// skips reports whether a decision does not try to detach a dependent: the pass has tried it already, or its kind is over.
func (p *pass) skips(uid ownership.UID, s *state) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, failed := p.failed[uid]; failed || len(p.over) == 0 {
		return failed
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
	p.mu.Lock()
	defer p.mu.Unlock()
	refused, isRefused := errors.AsType[refusedError](err)
	switch {
	case err == nil:
		return
	case hasNoPlace(err):
		p.over[groupOfDependent(dependent)] = err
		return
	case isRefused:
		p.refused = &refused
	case p.err == nil:
		p.err = err
	}
	p.failed[dependent.UID] = now
}

// isOver reports whether the pass goes on in another decision.
func (p *pass) isOver() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.over) > 0
}

// end returns the error of a decision: an unfinishedError or a noPlaceError if the pass goes on when the owner comes back.
func (p *pass) end(now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	failure := p.err
	if failure == nil && p.refused != nil {
		failure = *p.refused
	}
	for _, err := range p.over {
		if failure != nil && !now.Before(p.due) {
			p.due = now.Add(failedAgain)
			return unfinishedError{failure}
		}
		return err
	}
	return failure
}

// next begins another decision of the same pass.
func (p *pass) next(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.over)
	maps.DeleteFunc(p.failed, func(_ ownership.UID, at time.Time) bool { return now.Sub(at) >= failedAgain })
	if len(p.failed) == 0 {
		p.err, p.refused = nil, nil
	}
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
