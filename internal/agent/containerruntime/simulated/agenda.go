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

// event is something that is to happen at a time. It takes the lock itself.
type event struct {
	at     time.Time
	happen func()
}

// agenda are the events to come, the next one first.
type agenda []event

func (a agenda) Len() int           { return len(a) }
func (a agenda) Less(i, j int) bool { return a[i].at.Before(a[j].at) }
func (a agenda) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }

// Push implements heap.Interface.
func (a *agenda) Push(x any) { *a = append(*a, x.(event)) } //nolint:forcetypeassert // heap.Push is given nothing else

// Pop implements heap.Interface.
func (a *agenda) Pop() any {
	last := len(*a) - 1
	e := (*a)[last]
	(*a)[last] = event{}
	*a = (*a)[:last]
	return e
}

// schedule puts an event on the agenda. The lock is held.
func (r *Runtime) schedule(e event) {
	heap.Push(&r.agenda, e)
	if r.agenda[0].at.Equal(e.at) {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

// Run implements runtime.Runtime: it lets happen what is on the agenda.
func (r *Runtime) Run(ctx context.Context, changed func(types.UID)) error {
	r.mu.Lock()
	r.changed = changed
	r.mu.Unlock()
	for ctx.Err() == nil {
		r.wait(ctx, r.happen())
	}
	return nil
}

// wait waits until then, or, if that is zero, for an event that comes first.
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

// happen lets happen what is due, and tells when the next event is; zero if there is none.
func (r *Runtime) happen() time.Time {
	for {
		r.mu.Lock()
		if len(r.agenda) == 0 {
			r.mu.Unlock()
			return time.Time{}
		}
		if first := r.agenda[0].at; r.clock.Now().Before(first) {
			r.mu.Unlock()
			return first
		}
		e := heap.Pop(&r.agenda).(event) //nolint:forcetypeassert // it holds nothing else
		r.mu.Unlock()
		e.happen()
	}
}

// addresses are the IP addresses of simulated pods. They are nowhere.
type addresses struct {
	last  netip.Addr
	taken map[string]struct{}
}

// podRange are the addresses that pods of a simulated node get.
func podRange() netip.Prefix { return netip.MustParsePrefix("10.128.0.0/9") }

// startFor lets the pods of a node in a process of its own begin somewhere in the range, so
// that they are unlikely to have the addresses of another's.
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

func (a *addresses) release(ips []string) {
	for _, ip := range ips {
		delete(a.taken, ip)
	}
}
