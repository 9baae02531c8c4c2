package simulated

import (
	"container/heap"
	"context"
	"encoding/binary"
	"hash/fnv"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// eventKind is the kind of an event.
type eventKind int

const (
	startDue  eventKind = iota // the start delay of a container is over
	endDue                     // an instance ends
	hookDue                    // a preStop hook ends
	answerDue                  // a step has ended early
)

// event is due at a given time. It names its subject, whose state is looked up: an event that waits for years must not
// keep a pod in memory. The subject cancels it when it ends.
type event struct {
	at   time.Time
	kind eventKind
	pod  types.UID
	name string // of the container that starts, or the ID of the instance
	how  end    // of an instance
	// answer ends the step of an answerDue, which is always due at once.
	answer func()
	index  int // in the queue; -1: it is not in it
}

// eventQueue is a heap of events, ordered by time.
type eventQueue []*event

func (q eventQueue) Len() int           { return len(q) }
func (q eventQueue) Less(i, j int) bool { return q[i].at.Before(q[j].at) }
func (q eventQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push implements heap.Interface.
func (q *eventQueue) Push(x any) {
	e := x.(*event)
	e.index = len(*q)
	*q = append(*q, e)
}

// Pop implements heap.Interface.
func (q *eventQueue) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	e.index = -1
	return e
}

// schedule adds an event and wakes Run if the event is now the earliest. The caller holds the lock.
func (r *Runtime) schedule(e event) *event {
	heap.Push(&r.events, &e)
	if r.events[0].at.Equal(e.at) {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
	return &e
}

// cancel removes an event from the queue if it is there. The caller holds the lock.
func (r *Runtime) cancel(e *event) {
	if e.index >= 0 {
		heap.Remove(&r.events, e.index)
	}
}

// answer ends a step as soon as the lock is free. The caller holds the lock.
func (r *Runtime) answer(done func(error), err error) {
	r.schedule(event{at: r.clock.Now(), kind: answerDue, answer: func() { done(err) }})
}

// discard removes a pod, and all that is scheduled for it. The caller holds the lock.
func (r *Runtime) discard(uid types.UID) {
	p := r.pods[uid]
	if p == nil {
		return
	}
	for container := range p.starting {
		r.giveUp(uid, container)
	}
	for _, run := range p.runs {
		r.remove(run)
	}
	r.addresses.free(p.sandbox.IPs)
	delete(r.pods, uid)
}

// remove marks an instance as removed. The caller holds the lock.
func (r *Runtime) remove(run *instance) {
	r.settle(run)
	run.gone = true
	run.tell()
}

// settle cancels what is scheduled for an instance that has ended or is removed. The caller holds the lock.
func (r *Runtime) settle(run *instance) {
	for _, e := range run.ends {
		r.cancel(e)
	}
	run.ends = nil
	if h := run.hook; h != nil {
		run.hook = nil
		r.cancel(h.event)
		r.answer(h.done, nil)
	}
}

// occur carries out an event that was taken from the queue.
func (r *Runtime) occur(e *event) {
	r.mu.Lock()
	report := r.apply(e)
	r.mu.Unlock()
	report()
}

// apply changes the state as an event says, and returns the function that reports it. The caller holds the lock.
func (r *Runtime) apply(e *event) (report func()) {
	switch e.kind {
	case startDue:
		if p := r.pods[e.pod]; p != nil && p.starting[e.name] != nil && p.starting[e.name].event == e {
			begun := r.takeStart(e.pod, e.name)
			r.start(e.pod, begun)
			return func() { begun.done(nil) }
		}
	case endDue:
		r.finish(e.pod, e.name, e.how)
		changed := r.changed
		return func() { changed(e.pod) }
	case hookDue:
		if run := r.alive(e.pod, e.name); run != nil && run.hook != nil && run.hook.event == e {
			done := run.hook.done
			run.hook = nil
			return func() { done(nil) }
		}
	case answerDue:
		return e.answer
	}
	return func() {}
}

// Run implements agent.Runtime: it calls events when they are due.
func (r *Runtime) Run(ctx context.Context, changed func(types.UID)) error {
	r.mu.Lock()
	r.changed = changed
	r.mu.Unlock()
	for ctx.Err() == nil {
		r.wait(ctx, r.happen())
	}
	return nil
}

// wait waits until the given time, or until an earlier event is scheduled. A zero time means that
// no event is scheduled.
func (r *Runtime) wait(ctx context.Context, until time.Time) {
	var due <-chan time.Time
	if !until.IsZero() {
		timer := r.clock.NewTimer(until.Sub(r.clock.Now()))
		defer timer.Stop()
		due = timer.C()
	}
	select {
	case <-due:
	case <-r.wake:
	case <-ctx.Done():
	}
}

// happen calls all due events. It returns the time of the next one, or zero.
func (r *Runtime) happen() time.Time {
	for {
		r.mu.Lock()
		if len(r.events) == 0 {
			r.mu.Unlock()
			return time.Time{}
		}
		if first := r.events[0].at; r.clock.Now().Before(first) {
			r.mu.Unlock()
			return first
		}
		e := heap.Pop(&r.events).(*event)
		r.happening = true
		r.mu.Unlock()
		r.occur(e)
		r.mu.Lock()
		r.happening = false
		r.mu.Unlock()
	}
}

// Due reports whether an event is due or happening, so that Run has yet to report a change.
func (r *Runtime) Due() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.happening || len(r.events) > 0 && !r.clock.Now().Before(r.events[0].at)
}

// addresses allocates the IP addresses of simulated pods. No interface has these addresses.
type addresses struct {
	last  netip.Addr
	taken map[string]struct{}
}

// podRange returns the range of the addresses of simulated pods.
func podRange() netip.Prefix { return netip.MustParsePrefix("10.128.0.0/9") }

// startFor starts at an offset in the range that depends on the node's name, so that nodes in
// separate processes are unlikely to assign the same address twice.
func (a *addresses) startFor(node string) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(node))
	base := binary.BigEndian.Uint32(podRange().Addr().AsSlice())
	blocks := uint32(1) << (24 - podRange().Bits()) // of 256 addresses
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], base+h.Sum32()%blocks<<8)
	a.last = netip.AddrFrom4(b)
}

func (a *addresses) take() string {
	if a.taken == nil {
		a.taken = map[string]struct{}{}
	}
	for {
		if a.last = a.last.Next(); !podRange().Contains(a.last) {
			a.last = podRange().Addr().Next()
		}
		ip := a.last.String()
		if _, taken := a.taken[ip]; !taken {
			a.taken[ip] = struct{}{}
			return ip
		}
	}
}

func (a *addresses) free(ips []string) {
	for _, ip := range ips {
		delete(a.taken, ip)
	}
}
