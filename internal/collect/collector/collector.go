// Package collector carries out the decisions of the rules: key, facts, verdict, request.
//
// The main flow:
//
//  1. The feed's observations go into the ownership graph (state.go, the Sink). The graph returns
//     the UIDs of the objects that have to be reconsidered because of them, and these go into the
//     queue.
//  2. A worker takes a UID (Run) and reconsiders the object (Collect): it gathers
//     the facts from the graph, has package verdict decide, and applies the decision:
//     one write at most, or the live reads that are needed to decide. There is no
//     read before a write: every write is conditioned on the observation that it was
//     computed from (write.go, verify.go).
//     Of objects with many owners the graph keeps a few references: the whole list is read live
//     (whole.go).
//  3. If a write is refused because the object has changed, the collector reads the object live and
//     decides on it again, at once (untilCurrent).
//  4. The effect of the write comes back as an observation.
//
// Two packages check a decision before its write. Before a finalizer of the collector is removed,
// package [barrier] proves that no dependent was missed (R15); no other part reads lists, except for
// lists of claimed owners (verify.go). And the breaker (breaker.go), if it is configured, pauses the
// deletions of a kind when there are too many. Requests go through package [client]. Each write is
// recorded with its evidence (record.go); Status reports the state of all parts.
//
// The collector has no rules of its own and keeps no objects: the rules are in package verdict, the
// objects in the graph. Package feed discovers the kinds.
//
// Collect needs no goroutine, so a simulator can drive it with an API, a queue, a clock and a sink
// of its own. The barrier then lists within the call of Collect that needs the lists, one after the
// other; calls from other coroutines meanwhile end at once and share the lists.
package collector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/collect/collector/barrier"
	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/collect/pace"
	"github.com/coppice-dev/coppice/internal/collect/queue"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
)

// Collector applies the rules to the feed's observations. Make one with New.
type Collector struct {
	config Config // with its defaults
	api    client.Interface
	queue  Queue
	state  *state
	reads  reads
	stats  *counters
	log    *slog.Logger
	// failures logs repeated failures.
	failures *pace.Failures
	clock    clock.PassiveClock

	barrier *barrier.Barrier
	breaker *breaker
	journal journal
	latency latency
	work    work
	term    term
	wholes  chan struct{} // a semaphore: one element for each decision that holds whole lists
	places  *places
	crew    crew
}

// immediateTries bounds how often a decision is repeated at once after a refused write. Then the
// object is hot, and has to wait.
const immediateTries = 5

// Run reconsiders objects until ctx ends, and returns when all workers have ended. It may be called again after it has
// returned, unless Config.Queue is set. It begins with all objects that may need an action (term.go), or, with
// Config.Restartable, with those that were queued. Call it when the graph is complete.
func (c *Collector) Run(ctx context.Context) {
	var workers sync.WaitGroup
	if q, ok := c.queue.(*queue.Reopening); ok {
		q.Open()
		if q.Forgets() {
			defer c.endTerm()
			c.beginTerm()
			workers.Go(func() { c.search(ctx) })
		}
	}
	c.state.refill() // what the former Run has left
	ended := make(chan struct{})
	context.AfterFunc(ctx, func() {
		c.queue.ShutDown()
		close(ended)
	})
	defer func() { <-ended }() // it must not shut down the queue that the next Run opens
	c.barrier.Open()
	workers.Go(func() { c.barrier.Run(ctx) })
	c.crew.begin(func() {
		workers.Go(func() {
			for c.next(ctx) && c.crew.isNeeded() {
			}
		})
	})
	for range c.config.Workers {
		workers.Go(func() {
			for c.next(ctx) {
			}
		})
	}
	workers.Wait()
}

// next takes one key and reconsiders its object. It returns false at the end.
func (c *Collector) next(ctx context.Context) bool {
	uid, ok := c.queue.Take()
	if ok && (ctx.Err() != nil || c.config.Await(ctx) != nil) {
		c.queue.Add(uid) // for the next Run, if there is one
		c.queue.Done(uid)
		return false
	}
	if !ok {
		return false
	}
	defer c.queue.Done(uid)
	c.work.begin()
	outcome := c.Collect(ctx, uid)
	c.work.end(uid, outcome)
	switch outcome.Next {
	case Settled:
		if outcome.Err == nil { // an object that waits for a place has not succeeded since it failed
			c.queue.Forget(uid)
		}
	case Retry:
		c.queue.Retry(uid)
	case Later:
		c.queue.After(uid, outcome.After)
	}
	return true
}

// Collect reconsiders one object: it decides, and carries out the decision.
func (c *Collector) Collect(ctx context.Context, uid ownership.UID) Outcome {
	c.state.refill()
	isLent := false
	ctx, visit := c.places.enter(ctx, uid, func() { isLent = true; c.crew.lend() })
	err := c.untilCurrent(ctx, func() (ownership.Object, error) { return c.collect(ctx, uid) })
	outcome := outcomeOf(err)
	if invited := c.places.leave(visit, outcome.Next); len(invited) > 0 {
		c.queue.Add(invited...)
	}
	if isLent {
		c.crew.back()
	}
	c.logFailure(ctx, uid, outcome)
	return outcome
}

// collect decides about one object once. It returns the observation that the decision is based on,
// and the error of applying it.
func (c *Collector) collect(ctx context.Context, uid ownership.UID) (ownership.Object, error) {
	epoch := c.state.Epoch()
	facts, undecided := c.state.gather(uid)
	if !undecided {
		c.barrier.Forget(uid)
		return ownership.Object{}, c.recheck(ctx, uid)
	}
	found, err := c.examine(ctx, facts)
	switch {
	case err != nil:
		return facts.Object, err
	case found.isGone:
		c.barrier.Forget(uid)
		return facts.Object, nil
	}
	facts = found.facts
	c.report(ctx, facts)
	decision := verdict.Decide(facts)
	c.stats.decided(decision)
	if _, ok := decision.(verdict.RemoveFinalizer); !ok {
		c.barrier.Forget(uid)
	}
	c.state.decided(facts.Object, decision)
	err = c.apply(ctx, epoch, facts, decision)
	if err == nil && found.unobserved && actionOf(decision) == "" {
		err = errUnobserved
	}
	return facts.Object, err
}

// apply carries out the decision about an object, whose facts are of an epoch.
func (c *Collector) apply(ctx context.Context, epoch int, f verdict.Facts, decision verdict.Decision) error {
	if c.config.ObserveOnly && actionOf(decision) != "" {
		c.observe(ctx, f, decision)
		return nil
	}
	if actionOf(decision) != "" {
		if err := c.checkRefused(f.Object); err != nil {
			return err
		}
	}
	switch d := decision.(type) {
	case verdict.Keep, verdict.Park, verdict.Await:
		// An observation that changes the decision brings the object back through the graph.
		c.logIdle(ctx, f.Object, d)
		return nil
	case verdict.Verify:
		c.logIdle(ctx, f.Object, d)
		return c.verify(ctx, f.Object.UID, d.Claims)
	case verdict.Reread:
		c.logIdle(ctx, f.Object, d)
		return c.rereadAll(ctx, d.Objects)
	case verdict.Detach:
		return c.writeOwners(ctx, epoch, f, d.Remaining, d)
	case verdict.Unblock:
		return c.writeOwners(ctx, epoch, f, d.Owners, d)
	case verdict.Delete:
		return c.delete(ctx, epoch, f, d)
	case verdict.Disown:
		return c.disown(ctx, epoch, f.Object, d)
	case verdict.RemoveFinalizer:
		return c.complete(ctx, epoch, f, d)
	default:
		return fmt.Errorf("apply decision about %s: unknown type %T", client.RefOf(f.Object), decision)
	}
}

// untilCurrent repeats a step whose write was refused because the object has changed since the
// observation: it reads the object live and takes the step again (R12). It never drops the
// precondition, and computes nothing from an old observation.
func (c *Collector) untilCurrent(ctx context.Context, step func() (ownership.Object, error)) error {
	var self ownership.Object
	for range immediateTries {
		var err error
		self, err = step()
		refused, isRefused := errors.AsType[refusedWrite](err)
		switch {
		case isRefused && !refused.mayBeConflict():
			return c.refuse(ctx, refused)
		case !isRefused && !apierrors.IsConflict(err):
			return err
		}
		c.stats.conflicts.Add(1)
		same, readErr := c.reread(ctx, self)
		switch {
		case readErr != nil:
			return readErr
		case same && isRefused:
			return c.refuse(ctx, refused)
		}
	}
	c.stats.hot.Add(1)
	return hotError{client.RefOf(self)}
}
