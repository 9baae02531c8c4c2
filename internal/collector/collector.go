// Package collector does what the rules decide: key, facts, verdict, request.
//
// The main flow:
//
//  1. The feed's observations go into the ownership graph (state, the Sink).
//     The graph answers which objects have to be reconsidered because of them;
//     their UIDs go into the queue.
//  2. A worker takes a UID (Run) and reconsiders the object (Collect): it
//     gathers the facts from the graph, has them judged by package verdict, and
//     applies the decision: one write at most, or the live reads that are needed
//     to decide. There is no read before a write: every write is conditioned on
//     the observation that it was computed from.
//  3. A write that is refused because the object has changed is followed by a
//     live read, and the object is decided about anew, at once (untilCurrent).
//  4. What the write has done comes back as an observation.
//
// Two things stand between a decision and its write. Before a finalizer of the
// collector's is removed the barrier proves that no dependent was missed
// (barrier.go, R15); it is the only part that reads lists. And the breaker, if it
// is configured, pauses the deletions of a kind when there are too many
// (breaker.go). What was written is recorded with its evidence (record.go);
// Status tells how all of it is doing.
//
// The collector has no rules of its own and keeps no objects: rules are in
// package verdict, what is known is in the graph. It does not find out which
// kinds there are: package feed does.
//
// Collect needs no goroutine, so a simulator can drive it with an API, a queue, a
// clock and a sink of its own (see apimodel). The barrier's lists are then made
// within the call of Collect that needs them, one after the other; other calls
// that come meanwhile, from coroutines, end at once and are served by it too.
package collector

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/feed"
	"github.com/coppice-dev/coppice/internal/ownership"
	"github.com/coppice-dev/coppice/internal/pace"
	"github.com/coppice-dev/coppice/internal/queue"
	"github.com/coppice-dev/coppice/internal/verdict"
)

// Config of a collector. The zero value works.
type Config struct {
	// Workers is how many objects are reconsidered at the same time. Default: 20.
	Workers int
	// Detachers is how many dependents of one owner are detached at the same
	// time when it is orphaned. With 1 Collect starts no goroutine. Default: 16.
	Detachers int
	// Batch is how many unknown owners of one kind and namespace an object must name
	// for them to be read with one list, if the kind does not have many objects more.
	// Fewer are read one by one. Default: 16.
	Batch int
	// Barrier proves that no dependent was missed before a foreground or orphan
	// deletion is completed (R15). Off is for measuring what it costs.
	Barrier Switch
	// Lists is how many lists the barrier has under way at the same time. Default: 16.
	Lists int
	// ObserveOnly decides and records, and changes nothing on the server: no
	// write, and no Event. It reads.
	ObserveOnly bool
	// Breaker pauses deletions when there are too many. Default: it does not.
	Breaker Breaker
	// Limiter bounds the requests under way, and finds out how many the server can
	// take. Default: nothing does but the number of workers.
	Limiter *pace.Limiter
	// Records is how many decisions that changed the world are remembered; none if
	// it is negative. Default: 10000.
	Records int
	// Events takes reports about owner references that can never be right, and
	// about deletions that are held or paused. Default: nowhere.
	Events Events
	// Logger takes what the collector has to say. Default: none.
	Logger *slog.Logger
	// Clock times back-off. Default: the system's.
	Clock clock.WithTicker
	// Queue holds the keys. Default: a queue of package queue.
	Queue Queue
}

// Switch turns a part of the collector on or off.
type Switch uint8

const (
	// On is the default.
	On Switch = iota
	// Off leaves the part out.
	Off
)

// Collector applies the rules to what the feed observes. Make one with New.
type Collector struct {
	api    API
	events Events
	queue  Queue
	state  *state
	reads  reads
	stats  *counters
	log    *slog.Logger
	clock  clock.PassiveClock

	limiter *pace.Limiter // nil: none
	barrier *barrier
	brake   *brake
	journal journal
	latency latency

	workers     int
	detachers   int
	batch       int
	observeOnly bool
}

// immediateTries bounds how often a decision is repeated at once because its
// write was refused. After that the object is hot, and has to wait.
const immediateTries = 5

// New returns a collector that acts through api.
func New(api API, config Config) *Collector {
	if config.Workers <= 0 {
		config.Workers = 20
	}
	if config.Detachers <= 0 {
		config.Detachers = 16
	}
	if config.Batch <= 0 {
		config.Batch = 16
	}
	if config.Lists <= 0 {
		config.Lists = 16
	}
	switch {
	case config.Records == 0:
		config.Records = 10000
	case config.Records < 0:
		config.Records = 0
	}
	if config.ObserveOnly {
		config.Events = nil // to write one is to write
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	state := newState(config.Clock)
	if config.Queue == nil {
		// Namespaces take turns: whoever fills the queue of one slows down nobody else.
		config.Queue = queue.New(queue.Config{Clock: config.Clock, Tenant: state.namespace})
	}
	state.queue = config.Queue
	if config.Limiter != nil {
		api = pacedAPI{api, config.Limiter}
	}
	stats := &counters{}
	c := &Collector{
		api:         countedAPI{api, stats},
		limiter:     config.Limiter,
		events:      config.Events,
		queue:       config.Queue,
		state:       state,
		stats:       stats,
		log:         config.Logger,
		clock:       config.Clock,
		journal:     journal{size: config.Records},
		workers:     config.Workers,
		detachers:   config.Detachers,
		batch:       config.Batch,
		observeOnly: config.ObserveOnly,
	}
	c.brake = &brake{clock: config.Clock, state: c.state, breaker: newBreaker(config.Breaker)}
	c.barrier = newBarrier(c, config)
	return c
}

// Sink is where the feed's observations go. It may be used before Run.
func (c *Collector) Sink() feed.Sink { return sink{c.state, c.barrier, c.stats} }

// sink tells the barrier what it waits for.
type sink struct {
	*state
	barrier *barrier
	stats   *counters
}

// Replace implements feed.Sink.
func (s sink) Replace(kind ownership.Kind, objects []ownership.Object) {
	s.state.Replace(kind, objects)
	s.barrier.wake(kind)
}

// SetScope implements feed.Sink.
func (s sink) SetScope(kind ownership.Kind, scope ownership.Scope) {
	s.state.SetScope(kind, scope)
	s.barrier.rescope(kind, scope)
}

// NewEpoch implements feed.Sink.
func (s sink) NewEpoch() {
	s.stats.epochs.Add(1)
	s.state.NewEpoch()
	s.barrier.doubt()
}

// Run reconsiders objects until ctx ends, and returns when all workers have
// ended. It may be called once. What was observed before is worked off first:
// call it when the graph is complete.
func (c *Collector) Run(ctx context.Context) {
	stop := context.AfterFunc(ctx, c.queue.ShutDown)
	defer stop()
	var workers sync.WaitGroup
	c.barrier.open()
	workers.Go(func() { c.barrier.run(ctx) })
	for range c.workers {
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
	if !ok || ctx.Err() != nil {
		return false
	}
	defer c.queue.Done(uid)
	switch outcome := c.Collect(ctx, uid); outcome.Next {
	case Settled:
		c.queue.Forget(uid)
	case Retry:
		c.queue.Retry(uid)
	case Later:
		c.queue.After(uid, outcome.After)
	}
	return true
}

// Collect reconsiders one object: it decides, and does what was decided.
func (c *Collector) Collect(ctx context.Context, uid ownership.UID) Outcome {
	err := c.untilCurrent(ctx, func() (ownership.Object, error) { return c.collect(ctx, uid) })
	outcome := outcomeOf(err)
	c.logFailure(ctx, uid, outcome)
	return outcome
}

// collect decides about one object once. It returns the observation that the
// decision rests on, and the error of carrying it out.
func (c *Collector) collect(ctx context.Context, uid ownership.UID) (ownership.Object, error) {
	facts, undecided := c.state.gather(uid)
	if !undecided {
		c.barrier.forget(uid)
		return ownership.Object{}, c.recheck(ctx, uid)
	}
	c.report(ctx, facts)
	decision := verdict.Decide(facts)
	c.stats.decided(decision)
	if _, ok := decision.(verdict.Release); !ok {
		c.barrier.forget(uid)
	}
	return facts.Object, c.apply(ctx, facts, decision)
}

// apply carries out a decision about an object.
func (c *Collector) apply(ctx context.Context, f verdict.Facts, decision verdict.Decision) error {
	if c.observeOnly && actionOf(decision) != "" {
		c.observe(ctx, f, decision)
		return nil
	}
	switch d := decision.(type) {
	case verdict.Keep, verdict.Park, verdict.Await:
		// What would change the decision is an observation, and the graph
		// brings the object back when it is made.
		c.logIdle(ctx, f.Object, d)
		return nil
	case verdict.Verify:
		c.logIdle(ctx, f.Object, d)
		return c.verify(ctx, f.Object.UID, d.Claims)
	case verdict.Reread:
		c.logIdle(ctx, f.Object, d)
		return c.rereadAll(ctx, d.Objects)
	case verdict.Detach:
		return c.writeOwners(ctx, f, d.Remaining, d)
	case verdict.Unblock:
		return c.writeOwners(ctx, f, d.Owners, d)
	case verdict.Delete:
		return c.delete(ctx, f, d)
	case verdict.Disown:
		return c.disown(ctx, f.Object, d)
	case verdict.Release:
		return c.complete(ctx, f, d)
	default:
		return fmt.Errorf("decision %T about %s is not known", decision, RefOf(f.Object))
	}
}

// untilCurrent repeats a step whose write is refused because the object is not
// any more what the step took it for: read the object live, take the step again
// (R12). The condition is never dropped, and nothing is computed from what is old.
func (c *Collector) untilCurrent(ctx context.Context, step func() (ownership.Object, error)) error {
	var self ownership.Object
	for range immediateTries {
		var err error
		self, err = step()
		if !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) {
			return err
		}
		c.stats.conflicts.Add(1)
		same, readErr := c.reread(ctx, self)
		switch {
		case readErr != nil:
			return readErr
		case same && apierrors.IsInvalid(err):
			// Not for the condition, then: a server may refuse another UID as
			// invalid too. This write it would refuse again.
			return err
		}
	}
	c.stats.hot.Add(1)
	return hotError{RefOf(self)}
}
