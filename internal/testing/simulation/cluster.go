package simulation

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/coppice-dev/coppice/internal/collect/collector"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// cluster is an API server and a collector, with all requests and events in flight between them.
type cluster struct {
	ctx    context.Context // one for the whole run, given to Collect
	server *apiServer
	in     *instance
	ghosts []*call // requests that a crash or a timeout left in flight
	oracle *oracle

	workers int // at the same time, at most
	piece   int
	barrier collector.Switch

	tellsNewest bool          // the server does
	log         *bytes.Buffer // nil: no log
	applied     int           // steps
	requests    int           // that reached the server, from any sender
	crashes     int
	violation   *Violation
}

// Violation is a broken invariant or rule.
type Violation struct {
	Rule string // "S1", "L2", "R12", …
	What string
	Step int // number of the step in which it was found
}

func (v *Violation) String() string { return fmt.Sprintf("%s: %s (step %d)", v.Rule, v.What, v.Step) }

// maxWorkers is the number of keys that are processed concurrently, unless a test sets another.
const maxWorkers = 3

// references is the number of owner references up to which the graph keeps all of them; of more it keeps one.
const references = 3

func newCluster(ctx context.Context, settings Settings, log *bytes.Buffer) *cluster {
	w := &cluster{ctx: ctx, server: newAPIServer(), log: log, workers: cmp.Or(settings.Workers, maxWorkers), piece: settings.Piece}
	if settings.NoBarrier {
		w.barrier = collector.Off
	}
	w.oracle = &oracle{w}
	w.server.admission = settings.Admission
	w.tellsNewest = settings.Newest
	w.server.beforeWrite = w.oracle.beforeWrite
	w.server.afterWrite = w.oracle.afterWrite
	w.start(Step{})
	return w
}

// start starts a new collector with the current state, except for the kind that the step makes
// unreadable.
func (w *cluster) start(s Step) {
	w.in = &instance{
		queue:   newKeys(),
		streams: make([]stream, len(w.server.resources)),
		trusts:  w.server.restored,
		warned:  make(map[ownership.UID]bool),
	}
	w.in.collector = collector.New(api{w}, collector.Config{
		Barrier:    w.barrier,
		Workers:    1,
		Lists:      w.workers,
		Batch:      2, // the smallest size with which both ways of reading claims are used
		Records:    16,
		References: references,
		Piece:      w.piece,
		Queue:      w.in.queue,
		Events:     w.in,
		Clock:      w.in.queue.clock,
	})
	for i, r := range w.server.resources {
		switch {
		case r.served && r.short == s.Kind && s.Failure == "undiscovered":
			w.in.streams[i].unknown = true
		case r.served:
			w.in.streams[i].told = true
			w.in.collector.Sink().SetScope(r.kind, r.scope)
		}
	}
	for i, r := range w.server.resources {
		if r.short != s.Kind {
			w.list(i, s.Stale)
		}
	}
}

// close ends all workers.
func (w *cluster) close() { w.in.kill() }

func (w *cluster) logf(format string, args ...any) {
	if w.log != nil {
		fmt.Fprintf(w.log, format+"\n", args...)
	}
}

func (w *cluster) fail(rule, format string, args ...any) {
	if w.violation == nil {
		w.violation = &Violation{Rule: rule, What: fmt.Sprintf(format, args...), Step: w.applied}
		w.logf("VIOLATION %s", w.violation)
	}
}

// apply takes a step. It returns false if the step does not apply.
func (w *cluster) apply(s Step) bool {
	w.applied++
	begin := 0
	if w.log != nil {
		begin = w.log.Len()
		w.logf("%d %s", w.applied, s)
	}
	applies := false
	switch {
	case s.Op.isUser():
		applies = w.use(s)
	case s.Kind != "" && s.Op != Crash:
		applies = w.turn(s)
	default:
		applies = w.work(s)
	}
	if !applies {
		w.applied--
		if w.log != nil {
			w.log.Truncate(begin)
		}
	}
	return applies
}

// use takes a step of a user.
func (w *cluster) use(s Step) bool {
	switch s.Op {
	case Create:
		return w.server.create(ownership.Object{
			Kind: s.Ref.Kind, Namespace: s.Ref.Namespace, Name: s.Ref.Name, UID: s.UID,
			Owners: s.Owners, Finalizers: s.Finalizers,
		})
	case Delete:
		return w.server.remove(s.Ref, s.Policy)
	case Own:
		return w.server.change(s.Ref, func(o *ownership.Object) {
			for _, r := range s.Owners {
				if i := slices.IndexFunc(o.Owners, func(old ownership.Reference) bool { return old.UID == r.UID }); i >= 0 {
					o.Owners[i] = r
				} else {
					o.Owners = append(o.Owners, r)
				}
			}
		})
	case Disown:
		return w.server.change(s.Ref, func(o *ownership.Object) {
			o.Owners = slices.DeleteFunc(o.Owners, func(old ownership.Reference) bool {
				return slices.ContainsFunc(s.Owners, func(r ownership.Reference) bool { return r.UID == old.UID })
			})
		})
	case Finalize:
		return w.server.change(s.Ref, func(o *ownership.Object) {
			for _, f := range s.Finalizers {
				if !slices.Contains(o.Finalizers, f) {
					o.Finalizers = append(o.Finalizers, f)
				}
			}
		})
	case Unfinalize:
		return w.server.change(s.Ref, func(o *ownership.Object) {
			o.Finalizers = slices.DeleteFunc(o.Finalizers, func(f string) bool { return slices.Contains(s.Finalizers, f) })
		})
	default:
		return false
	}
}

// turn takes a step of the server or of a watch.
func (w *cluster) turn(s Step) bool {
	i := slices.IndexFunc(w.server.resources, func(r *resource) bool { return r.short == s.Kind })
	if i < 0 {
		return false
	}
	r := w.server.resources[i]
	switch s.Op {
	case Deliver:
		return w.deliver(i)
	case Repeat:
		return w.repeat(i)
	case Relist:
		return w.list(i, s.Stale)
	case Travel:
		return w.travel(i, s.Stale)
	case Break:
		applies := r.served && !r.broken
		r.broken = r.broken || applies
		return applies
	case Mend:
		applies := r.broken
		r.broken = false
		return applies
	case Withdraw:
		if !r.served || r.short != widget {
			return false
		}
		w.server.withdraw(r)
		return true
	case Serve:
		applies := !r.served && r.scope != ownership.ScopeUnknown
		r.served = r.served || applies
		return applies
	case Notice:
		return w.notice(i)
	default:
		return false
	}
}

// work takes a step of the collector.
func (w *cluster) work(s Step) bool {
	switch s.Op {
	case Collect:
		return w.collect(s.UID)
	case Wake:
		return w.in.queue.wake(s.UID)
	case Crash:
		w.crash(s)
		return true
	case Restore:
		return w.restore(s.Stale)
	case Haunt:
		return w.haunt()
	case CatchUp:
		return w.catchUp()
	case Work:
		return w.workOff()
	case Settle:
		return w.settle()
	default:
		worker := w.in.worker(s.UID)
		return worker != nil && w.request(worker, s)
	}
}

// collect lets a worker take a key.
func (w *cluster) collect(uid ownership.UID) bool {
	if len(w.in.workers) >= w.workers || !w.in.queue.take(uid) {
		return false
	}
	w.logf("  worker takes #%s", number(uid))
	w.sent(w.in.begin(w.ctx, uid))
	return true
}

// request takes a step of the request that a worker waits for.
func (w *cluster) request(worker *worker, s Step) bool {
	c := worker.call
	switch s.Op {
	case Execute:
		if c.executed {
			return false
		}
		w.execute(c)
		return true
	case Answer:
		if !c.executed {
			w.execute(c)
		}
	case Fail:
		if c.executed || s.Failure == "410" && c.verb != list {
			return false
		}
		c.void()
		c.err = failure(s.Failure, c.ref)
	case Lose:
		if !c.executed {
			w.execute(c)
		}
		c.void()
	case Drop:
		if c.executed {
			return false
		}
		if !c.isRead() {
			w.ghosts = append(w.ghosts, c)
		}
		c.void()
	default:
		return false
	}
	if w.log != nil && c.err != nil {
		w.logf("  answer: %v", c.err)
	}
	w.in.proceed(worker)
	w.sent(worker)
	return true
}

// sent logs the next request of a worker, or its end.
func (w *cluster) sent(worker *worker) {
	if w.log == nil {
		return
	}
	if worker.call == nil {
		w.logf("  worker #%s ends: %s", number(worker.uid), outcomeText(worker.outcome))
		return
	}
	w.logf("  worker #%s sends %s", number(worker.uid), worker.call)
}

func outcomeText(o collector.Outcome) string {
	switch o.Next {
	case collector.Retry:
		return fmt.Sprintf("again after its back-off: %v", o.Err)
	case collector.Later:
		return fmt.Sprintf("again after %v: %v", o.After, o.Err)
	default:
		return "settled"
	}
}

// execute carries out a request.
func (w *cluster) execute(c *call) {
	w.requests++
	c.executed = true
	if c.verb == survey {
		for i := range w.server.resources {
			w.learn(i)
		}
		c.kinds = w.watched()
		return
	}
	if c.verb == newest {
		c.newest = w.server.newest()
		return
	}
	c.object, c.err = w.server.execute(c)
}

// haunt executes the oldest request whose sender no longer waits for it.
func (w *cluster) haunt() bool {
	if len(w.ghosts) == 0 {
		return false
	}
	c := *w.ghosts[0] // its worker may be reading the answer to it
	w.ghosts = w.ghosts[1:]
	w.logf("  late: %s", &c)
	w.execute(&c)
	return true
}

// crash ends the collector immediately, and starts another one without any state.
func (w *cluster) crash(s Step) {
	for _, worker := range w.in.workers {
		if !worker.call.executed && !worker.call.isRead() && s.Failure != "lost" {
			w.ghosts = append(w.ghosts, worker.call)
		}
	}
	w.in.kill()
	w.crashes++
	w.start(s)
}
