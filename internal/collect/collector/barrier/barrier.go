// Package barrier proves, before a finalizer of the collector is removed, that no
// dependent of the owner was missed (R15).
//
// The graph holds the state that the watches have shown, and a watch may lag behind or not work at all.
// So:
//
//  1. The collector asks for a proof for an owner whose finalizer it has decided to
//     remove (Prove). The owner waits in the queue of its namespace; cluster-scoped owners have
//     a queue of their own.
//  2. A round (round.go) takes the owners of all namespaces for which no round is under way, and lists
//     every kind that could hold a dependent of theirs (lists.go). The lists begin after the owner was
//     queued, and so after its deletion was observed; they show the newest state. Owners that arrive
//     later wait for the next round. If the server reports the last write of each kind, kinds whose
//     watch has caught up with it are not listed (watches.go).
//  3. An object in a list that refers to the owner is passed to the graph, if the graph knows the
//     object (Graph.Confirm). If not, its watch lags, or the object is gone by now, and the owner is
//     held until the watch or the next list shows which.
//  4. A kind that cannot be listed holds the owner too. The proofs for the other kinds stay valid.
//  5. Proven or held, the owner returns to the collector's queue and is decided on again: by then the
//     graph may have dependents to detach or to wait for. The proof only says that the graph can be
//     trusted.
//
// So an object that only a list has shown never enters the graph: the list might be older than a
// DELETED event, which would not be repeated.
//
// Terms: a waiter is an owner that waits for its proof; it is queued, in a round, proven or held. A
// batch is the waiters of one namespace in a round. A Hold is the reason why an owner is held.
//
// Before Open, Prove makes the round itself, within the call, and the package starts no goroutine.
package barrier

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/collect/feed"
	"github.com/coppice-dev/coppice/internal/rules/apiservice"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// Reader makes the barrier's requests to the API server (see client.Interface).
type Reader interface {
	List(ctx context.Context, kind ownership.Kind, namespace string, limit int64, after string) (client.Page, error)
	Survey(ctx context.Context) (feed.Watched, error)
	Newest(ctx context.Context, kinds []ownership.Kind) (client.Newest, error)
	Reached(kind ownership.Kind) string
	Outage(ctx context.Context, groupVersion string) (apiservice.Outage, error)
	Created(ctx context.Context, observed ownership.Object) (time.Time, error)
}

// Graph is the part of the collector's ownership graph that a barrier needs. Its methods are
// called without holding locks of the barrier.
type Graph interface {
	// Epoch returns the number of the current epoch (R4).
	Epoch() int
	// Count returns how many objects of a kind are known.
	Count(kind ownership.Kind) int
	// Confirm applies an object as shown by a list that began in the given epoch. It reports whether the
	// graph knows that the object exists or is gone.
	Confirm(epoch int, o ownership.Object) bool
}

// Config of a barrier. All fields are required, except Disabled and Blocked.
type Config struct {
	Reader Reader
	Graph  Graph
	// Requeue puts owners back into the collector's queue.
	Requeue func(owners ...ownership.UID)
	Clock   clock.WithTicker
	// Lists bounds the lists that are under way at the same time.
	Lists int
	// Disabled lets every owner pass. It is for benchmarks, and for tests that show the errors without a
	// barrier.
	Disabled bool
	// Blocked is called once for an owner that several rounds in a row have held.
	Blocked func(ctx context.Context, owner ownership.Object, message string)
}

// Barrier holds owners until there is proof that none of their dependents was missed. Make one with
// New. It is safe for concurrent use.
type Barrier struct {
	config Config
	slots  chan struct{} // a semaphore: one element for each list under way

	rounds, holds atomic.Int64

	mu        sync.Mutex
	kindSlots map[ownership.Kind]chan struct{} // guarded by mu, and so is all below; slots of each kind
	waiters   map[ownership.UID]*waiter
	queues    map[string]*queue // by namespace; "" is that of cluster-scoped owners
	sequence  int               // numbers the queues, to serve them in turn
	queued    chan struct{}     // has an element when an owner is queued; nil before Open
	watched   watchHistory
	changes   changes
}

// changes are the events that may end a Hold. Each has a number, so that a round can detect the changes
// that it has missed.
type changes struct {
	last   int
	listed map[ownership.Kind]int // the feed has listed the kind
	served int                    // the set of served kinds has changed
}

// affect reports whether there was a change after the given one that concerns one of the kinds.
func (c *changes) affect(kinds []ownership.Kind, after int) bool {
	return c.served > after || slices.ContainsFunc(kinds, func(kind ownership.Kind) bool { return c.listed[kind] > after })
}

// queue holds the owners of one namespace that wait for a round.
type queue struct {
	waiters []*waiter
	reading bool // a round is reading for this namespace
	number  int  // lower numbers were served longer ago
}

// New returns a barrier without owners.
func New(config Config) *Barrier {
	return &Barrier{
		config:    config,
		slots:     make(chan struct{}, config.Lists),
		kindSlots: make(map[ownership.Kind]chan struct{}),
		waiters:   make(map[ownership.UID]*waiter),
		queues:    make(map[string]*queue),
		changes:   changes{listed: make(map[ownership.Kind]int)},
	}
}

// Prove reports whether a finalizer of an owner may be removed. If not, the owner comes back: through
// the collector's queue after a round for it, or, if the error is a HeldError, after the time in the
// error.
func (b *Barrier) Prove(ctx context.Context, owner ownership.Object, finalizer string) (bool, error) {
	if b.config.Disabled {
		return true, nil
	}
	b.mu.Lock()
	w := b.waiters[owner.UID]
	if w == nil || w.finalizer != finalizer {
		w = &waiter{owner: owner, finalizer: finalizer, since: b.config.Clock.Now()}
		b.waiters[owner.UID] = w
	}
	switch w.stage {
	case proven:
		b.mu.Unlock()
		return true, nil
	case held:
		w.stage = idle
		err := HeldError{Finalizer: finalizer, Holds: w.holds, After: max(w.delay, backoff(w.attempts, b.config.Clock.Now()))}
		b.mu.Unlock()
		return false, err
	case idle:
		w.stage = queued
		q := b.queueLocked(owner.Namespace)
		q.waiters = append(q.waiters, w)
	case queued:
	}
	b.mu.Unlock()
	b.startRounds(ctx)
	return false, nil
}

func (b *Barrier) queueLocked(namespace string) *queue {
	if b.queues[namespace] == nil {
		b.sequence++
		b.queues[namespace] = &queue{number: b.sequence}
	}
	return b.queues[namespace]
}

// Forget drops an owner that is gone, has lost its finalizer, or got another decision. If it comes
// back, it needs a new proof.
func (b *Barrier) Forget(owner ownership.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.waiters, owner)
}

// KindListed requeues the owners that a kind holds, because the feed has just listed the kind. Owners
// in a round that has read the kind before come back when the round ends (finish).
func (b *Barrier) KindListed(kind ownership.Kind) {
	b.mu.Lock()
	b.watched.listed(kind)
	b.changes.last++
	b.changes.listed[kind] = b.changes.last
	b.mu.Unlock()
	b.requeue(func(w *waiter) bool { return slices.Contains(w.unproven, kind) })
}

// ScopeChanged requeues all owners that are held, because the set of served kinds has changed.
func (b *Barrier) ScopeChanged(kind ownership.Kind, scope ownership.Scope) {
	b.mu.Lock()
	b.changes.last++
	b.changes.served = b.changes.last
	if scope == ownership.ScopeUnknown {
		delete(b.kindSlots, kind)
		delete(b.changes.listed, kind)
	}
	b.mu.Unlock()
	b.requeue(func(*waiter) bool { return true })
}

// requeue puts the held owners that match back into the collector's queue.
func (b *Barrier) requeue(match func(w *waiter) bool) {
	b.mu.Lock()
	var owners []ownership.UID
	for uid, w := range b.waiters {
		if (w.stage == held || w.stage == idle) && match(w) {
			w.stage = idle
			owners = append(owners, uid)
		}
	}
	b.mu.Unlock()
	slices.Sort(owners)
	b.config.Requeue(owners...)
}

// NewEpoch revokes all proofs: they came from another history of the server (R4).
func (b *Barrier) NewEpoch() {
	b.mu.Lock()
	var owners []ownership.UID
	for uid := range b.waiters {
		owners = append(owners, uid)
	}
	clear(b.waiters)
	b.mu.Unlock()
	slices.Sort(owners)
	b.config.Requeue(owners...)
}

// waiter is one owner at the barrier.
type waiter struct {
	owner     ownership.Object // as it was when it came
	finalizer string
	since     time.Time
	created   time.Time // of the owner; zero until a group version that does not answer makes it matter

	stage    stage
	attempts int // rounds that have held it

	// The findings of the last round; empty before the first has ended.
	read     []ownership.Kind // the kinds that have to be read
	unproven []ownership.Kind // the ones without a proof so far
	holds    []report.Hold    // these in words, and the other holds
	delay    time.Duration    // the delay that the server has requested
}

type stage uint8

const (
	// idle owners are queued when they are reconsidered.
	idle stage = iota
	// queued owners wait for a round, or are in one.
	queued
	// proven owners may lose their finalizer.
	proven
	// held owners may not; the next Prove says why.
	held
)

// needs returns the kinds that must still be read for an owner: all at first, later the unproven ones
// and the ones that were not served before.
func (w *waiter) needs(kinds []ownership.Kind) []ownership.Kind {
	if w.read == nil {
		return kinds
	}
	var need []ownership.Kind
	for _, kind := range kinds {
		if slices.Contains(w.unproven, kind) || !slices.Contains(w.read, kind) {
			need = append(need, kind)
		}
	}
	return need
}

// isDependent reports whether a reference that an object makes would hold the owner. A
// reference under another kind may, too: only the graph can tell (R6). An orphan deletion detaches all objects that
// name the UID, whatever else they state.
func (w *waiter) isDependent(o *ownership.Object, r *ownership.Reference) bool {
	switch {
	case w.owner.Namespace != "" && w.owner.Namespace != o.Namespace:
		return false
	case w.finalizer == ownership.FinalizerOrphan:
		return o.UID != w.owner.UID // its own reference goes with it
	default:
		return r.Name == w.owner.Name && r.Blocking()
	}
}
