package simulation

import (
	"slices"

	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// catchUp delivers all watch events.
func (w *cluster) catchUp() bool {
	applies := false
	for w.violation == nil {
		i := w.oldest()
		if i < 0 {
			break
		}
		applies = w.deliver(i) || applies
	}
	return applies
}

// workOff processes all waiting keys, one worker after the other.
func (w *cluster) workOff() bool {
	applies := false
	for range maxTurns {
		if w.violation != nil || !w.workOn() {
			return applies
		}
		applies = true
	}
	w.fail("L4", "the collector does not come to rest: %d turns", maxTurns)
	return applies
}

// maxTurns bounds the work of a small cluster.
const maxTurns = 2000

// workOn answers the oldest worker, or gives the oldest key to a worker.
func (w *cluster) workOn() bool {
	switch {
	case len(w.in.workers) > 0:
		return w.request(w.in.workers[0], Step{Op: Answer})
	case len(w.in.queue.waiting) > 0:
		return w.collect(w.in.queue.waiting[0])
	default:
		return false
	}
}

// Order is the order of steps without faults.
type Order int

// The orders.
const (
	// Eager: watch events arrive before all other steps.
	Eager Order = iota
	// Lazy: watch events arrive when the collector has nothing else to do.
	Lazy
)

// ordinary returns the next step in an order; false when nothing is left to do but keys in
// back-off.
func (w *cluster) ordinary(order Order) (Step, bool) {
	event := w.oldest()
	switch {
	case event >= 0 && (order == Eager || len(w.in.workers)+len(w.in.queue.waiting) == 0):
		return Step{Op: Deliver, Kind: w.server.resources[event].short}, true
	case len(w.in.workers) > 0 && !w.in.workers[0].call.executed:
		return Step{Op: Execute, UID: w.in.workers[0].uid}, true
	case len(w.in.workers) > 0:
		return Step{Op: Answer, UID: w.in.workers[0].uid}, true
	case len(w.in.queue.waiting) > 0:
		return Step{Op: Collect, UID: w.in.queue.waiting[0]}, true
	default:
		return Step{}, false
	}
}

// settle delivers all events and processes all keys, as long as that leads to more work. Keys in
// back-off get a few chances.
func (w *cluster) settle() bool {
	applies := false
	for range backoffRounds {
		for w.violation == nil && (w.catchUp() || w.workOff()) {
			applies = true
		}
		if w.violation != nil || !w.wakeAll() {
			break
		}
		applies = true
	}
	return applies
}

// backoffRounds is the number of times that keys in back-off are tried until the cluster counts
// as settled.
const backoffRounds = 4

// wakeAll ends the back-off of all keys.
func (w *cluster) wakeAll() bool {
	uids := slices.Clone(w.in.queue.backoff)
	for _, uid := range uids {
		w.in.queue.wake(uid)
	}
	return len(uids) > 0
}

// rest lets the cluster come to rest, and checks that it does: first with the broken kinds, if any;
// then without faults, but with foreign finalizers; then without foreign finalizers.
func (w *cluster) rest() {
	if w.violation != nil {
		return
	}
	w.logf("rest")
	w.applied++
	for w.haunt() {
	}
	if w.mend(); w.violation != nil {
		return
	}
	w.comeToRest()
	w.logf("others let go")
	w.applied++
	for _, v := range w.server.standing() {
		w.server.change(client.RefOf(v.Object), func(o *ownership.Object) {
			o.Finalizers = slices.DeleteFunc(o.Finalizers, func(f string) bool { return !isOurs(f) })
		})
	}
	w.comeToRest()
}

// mend ends the faults of kinds, after checking that they hold only the objects that depend on
// them.
func (w *cluster) mend() {
	isBroken := func(r *resource) bool { return r.broken }
	if !slices.ContainsFunc(w.server.resources, isBroken) {
		return
	}
	w.look()
	w.settle()
	if w.violation == nil {
		w.oracle.withFaults()
	}
	w.logf("mended")
	w.applied++
	for _, r := range w.server.resources {
		r.broken = false
	}
}

// look lets the feed discover the served resources and list the unlisted ones.
func (w *cluster) look() {
	for i, r := range w.server.resources {
		w.notice(i)
		if r.watched && !w.in.streams[i].listed {
			w.list(i, 0)
		}
	}
}

// comeToRest lets the cluster come to rest, and checks that it has.
func (w *cluster) comeToRest() {
	w.look()
	w.settle()
	if w.violation != nil {
		return
	}
	before, revision := w.requests, w.server.revision
	w.wakeAll()
	w.workOff()
	if n := w.requests - before; w.violation == nil && (w.server.revision != revision || n > w.oracle.rereads()) {
		w.fail("L4", "at rest %d requests were sent in one round of back-off", n)
	}
	if w.violation == nil {
		w.oracle.atRest()
	}
}
