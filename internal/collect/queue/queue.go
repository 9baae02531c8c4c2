// Package queue holds the UIDs of the objects that wait to be reconsidered.
//
// A queue carries keys and nothing else: the worker that takes a key reads the current state. A
// key waits at most once however often it is added, is with at most one worker at a time, and
// comes back when it was added meanwhile. There are three ways to add a key:
//
//	Add    something was observed: to be taken as soon as a worker is free
//	Retry  an attempt failed: after the key's own exponential back-off
//	After  the server named a time (Retry-After): not before it
//
// It is client-go's workqueue with another order and another back-off. There is no rate limit over
// all keys: one object that fails does not slow down another. Tenants take turns (turns.go): a
// tenant that fills the queue does not slow down another either.
package queue

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// Config of a queue. The zero value works.
type Config struct {
	// Clock times back-off. Default: the system's.
	Clock clock.WithTicker
	// Tenant returns the tenant that a key belongs to; tenants take turns. It is called when
	// a key begins to wait, and must not call the queue. Default: there is one tenant.
	Tenant func(ownership.UID) string
	// Jitter returns a number in [0,1) that spreads back-off. Default: random.
	Jitter func() float64
}

// Queue is a de-duplicating queue of UIDs with back-off for each. It is safe
// for concurrent use. ShutDown ends its goroutine.
type Queue struct {
	keys  workqueue.TypedRateLimitingInterface[key]
	order *fair
}

// New returns an empty queue.
func New(config Config) *Queue {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	order := newFair(config.Tenant, config.Clock)
	waiting := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[key]{Clock: config.Clock, Queue: order})
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[key]{Clock: config.Clock, Queue: waiting})
	return &Queue{
		keys: workqueue.NewTypedRateLimitingQueueWithConfig(
			newBackoff(config.Jitter),
			workqueue.TypedRateLimitingQueueConfig[key]{Clock: config.Clock, DelayingQueue: delaying},
		),
		order: order,
	}
}

// Add adds keys, to be taken as soon as a worker is free.
func (q *Queue) Add(uids ...ownership.UID) {
	for _, uid := range uids {
		q.keys.Add(keyOf(uid))
	}
}

// Retry adds a key after its back-off, which doubles with every Retry until Forget.
func (q *Queue) Retry(uid ownership.UID) { q.keys.AddRateLimited(keyOf(uid)) }

// After adds a key when d has passed. It does not change the key's back-off.
func (q *Queue) After(uid ownership.UID, d time.Duration) { q.keys.AddAfter(keyOf(uid), d) }

// Forget ends the back-off of a key: its next Retry starts from the shortest.
func (q *Queue) Forget(uid ownership.UID) { q.keys.Forget(keyOf(uid)) }

// Take waits for a key. It returns false when the queue is shut down and empty.
// Every key that was taken must be returned with Done.
func (q *Queue) Take() (ownership.UID, bool) {
	taken, closed := q.keys.Get()
	return taken.uid(), !closed
}

// Done returns a key that was taken. When it was added meanwhile, it waits again.
func (q *Queue) Done(uid ownership.UID) {
	q.keys.Done(keyOf(uid)) // first: a key that waits again is counted twice for a moment, but never missed
	q.order.returned()
}

// Len returns the number of keys that wait for a worker; those in back-off do not count.
func (q *Queue) Len() int { return q.keys.Len() }

// Busy returns the number of keys that wait for a worker or are with one; those in back-off do not
// count.
func (q *Queue) Busy() int { return q.order.busy() }

// Waiting returns the number of keys of one tenant that wait for a worker.
func (q *Queue) Waiting(tenant string) int { return q.order.waiting(tenant) }

// Oldest returns how long the key that waits longest for a worker has waited.
func (q *Queue) Oldest() time.Duration { return q.order.oldest() }

// Failures returns how often Retry was called for a key since it was last forgotten.
func (q *Queue) Failures(uid ownership.UID) int { return q.keys.NumRequeues(keyOf(uid)) }

// ShutDown rejects further keys. Take returns those that still wait, and then false.
func (q *Queue) ShutDown() { q.keys.ShutDown() }
