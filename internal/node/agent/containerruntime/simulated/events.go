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

// event is a function to call at a given time. The function acquires the lock itself.
type event struct {
	at     time.Time
	happen func()
}

// eventQueue is a heap of events, ordered by time.
type eventQueue []event

func (q eventQueue) Len() int           { return len(q) }
func (q eventQueue) Less(i, j int) bool { return q[i].at.Before(q[j].at) }
func (q eventQueue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }

// Push implements heap.Interface.
func (q *eventQueue) Push(x any) { *q = append(*q, x.(event)) }

// Pop implements heap.Interface.
func (q *eventQueue) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = event{}
	*q = (*q)[:last]
	return e
}

// schedule adds an event and wakes Run if the event is now the earliest. The caller holds the lock.
func (r *Runtime) schedule(e event) {
	heap.Push(&r.events, e)
	if r.events[0].at.Equal(e.at) {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
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
		e := heap.Pop(&r.events).(event)
		r.happening = true
		r.mu.Unlock()
		e.happen()
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
