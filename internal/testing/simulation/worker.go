package simulation

import (
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/coppice-dev/coppice/internal/collect/collector"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// instance is one life of the collector, from a cold start to a crash.
type instance struct {
	collector *collector.Collector
	queue     *keys
	streams   []stream // by index of the resource
	workers   []*worker
	running   *worker                // the one whose coroutine is running
	warned    map[ownership.UID]bool // objects that have an Event
	trusts    int                    // number of observed restores
}

// worker is a running call of Collect. It runs until it sends a request, and continues when it has
// the answer.
type worker struct {
	uid     ownership.UID
	call    *call // the request that it waits for; nil when it has ended
	outcome collector.Outcome
	seen    []int // the revisions of the watches when it began, by resource
	trusts  int   // of the instance when it began

	yield  func(*call) bool
	resume func() (*call, bool)
	stop   func()
}

// errCrash unwinds a coroutine when the collector has crashed.
var errCrash = errors.New("crash")

// begin takes a key and reconsiders its object, up to the first request.
func (in *instance) begin(ctx context.Context, uid ownership.UID) *worker {
	w := &worker{uid: uid, seen: make([]int, len(in.streams)), trusts: in.trusts}
	for i := range in.streams {
		w.seen[i] = in.streams[i].seen
	}
	w.resume, w.stop = iter.Pull(func(yield func(*call) bool) {
		defer func() {
			if r := recover(); r != nil && r != errCrash { //nolint:errorlint // a value that was panicked with
				panic(r)
			}
		}()
		w.yield = yield
		w.outcome = in.collector.Collect(ctx, uid)
	})
	in.workers = append(in.workers, w)
	in.proceed(w)
	return w
}

// proceed lets a worker run up to its next request. When the worker has ended, its key is queued
// again as in the collector's own loop.
func (in *instance) proceed(w *worker) {
	in.running = w
	w.call, _ = w.resume()
	in.running = nil
	if w.call != nil {
		return
	}
	in.workers = slices.DeleteFunc(in.workers, func(other *worker) bool { return other == w })
	switch w.outcome.Next {
	case collector.Settled:
		in.queue.Forget(w.uid)
	case collector.Retry:
		in.queue.Retry(w.uid)
	case collector.Later:
		in.queue.After(w.uid, w.outcome.After)
	}
	in.queue.Done(w.uid)
}

// send sends a request of the running worker.
func (in *instance) send(c *call) (ownership.Object, error) {
	w := in.running
	c.worker = w
	if !w.yield(c) {
		panic(errCrash)
	}
	return c.object, c.err
}

// worker returns the worker that has a key.
func (in *instance) worker(uid ownership.UID) *worker {
	for _, w := range in.workers {
		if w.uid == uid {
			return w
		}
	}
	return nil
}

// kill ends all workers immediately.
func (in *instance) kill() {
	for _, w := range in.workers {
		w.stop()
	}
	in.workers = nil
}

// Warn implements collector.Events.
func (in *instance) Warn(_ context.Context, regarding ownership.Object, _, _ string) error {
	in.warned[regarding.UID] = true
	return nil
}

var _ collector.Events = (*instance)(nil)
