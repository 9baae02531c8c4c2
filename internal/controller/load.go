package controller

import (
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

// Back-off for a key whose reconciliation fails.
const (
	firstRetry = 5 * time.Millisecond
	lastRetry  = 2 * time.Minute
)

// load is the work that a controller has at the moment. Its methods may be called concurrently; queue only once.
type load struct {
	begun, ended atomic.Int64                                      // reconciliations since the start
	waiting      atomic.Pointer[workqueue.Typed[cache.ObjectName]] // nil until the controller runs
}

// queue returns the queue of the controller. Each key that is taken from it is to be counted in ended.
func (l *load) queue(clock clock.WithTicker) workqueue.TypedRateLimitingInterface[cache.ObjectName] {
	inner := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[cache.ObjectName]{
		Clock: clock, Queue: countedQueue{workqueue.DefaultQueue[cache.ObjectName](), &l.begun},
	})
	l.waiting.Store(inner)
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](firstRetry, lastRetry),
		workqueue.TypedRateLimitingQueueConfig[cache.ObjectName]{
			Clock:         clock,
			DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[cache.ObjectName]{Clock: clock, Queue: inner}),
		})
}

// countedQueue counts the keys that are taken from it. The workqueue calls it under its lock, as it does for Len: each key
// is either counted or in the queue.
type countedQueue struct {
	workqueue.Queue[cache.ObjectName]

	begun *atomic.Int64
}

// Pop implements workqueue.Queue.
func (q countedQueue) Pop() cache.ObjectName {
	q.begun.Add(1)
	return q.Queue.Pop()
}

// numbers returns how many objects the controller is reconciling, and how many it could reconcile at once. Both are 0 only
// if there was a moment without any.
func (l *load) numbers() (inWork, waiting int) {
	// The order matters: if no more have begun at the end than had ended at the start, none was in work in between, which is
	// when the queue was looked at.
	ended := l.ended.Load()
	if queue := l.waiting.Load(); queue != nil {
		waiting = queue.Len()
	}
	return int(l.begun.Load() - ended), waiting
}
