package queue

import (
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// fair is the order in which keys are taken: the tenants take turns, one key each, and the
// keys of one tenant are first in, first out. However many keys a tenant has, the next key
// of another one is taken after at most one key of each tenant.
//
// It implements workqueue.Queue, whose methods are called under the lock of the workqueue;
// its own lock is for oldest and waiting.
type fair struct {
	tenant func(ownership.UID) string
	clock  clock.PassiveClock
	began  time.Time

	mu    sync.Mutex
	lines map[string]*line // guarded by mu, and so is all below; a line is never empty
	turns []*line          // the lines, as a ring; the next one to be served is at index next
	next  int
	len   int
	taken int // keys that were popped, and not returned
}

// line holds the waiting keys of one tenant.
type line struct {
	tenant string
	keys   []waiting
}

type waiting struct {
	key   key
	since time.Duration // from fair.began: a third of a time.Time
}

func newFair(tenant func(ownership.UID) string, c clock.PassiveClock) *fair {
	if tenant == nil {
		tenant = func(ownership.UID) string { return "" }
	}
	return &fair{tenant: tenant, clock: c, began: c.Now(), lines: map[string]*line{}}
}

// Touch does nothing: a key that is added again keeps its place.
func (f *fair) Touch(key) {}

// Push puts a key at the end of its tenant's line.
func (f *fair) Push(k key) {
	// Called before the lock is taken: Tenant reads the graph, which has its own lock.
	tenant := f.tenant(k.uid())
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.lines[tenant]
	if l == nil {
		l = &line{tenant: tenant}
		f.lines[tenant] = l
		f.turns = append(f.turns, l)
	}
	l.keys = append(l.keys, waiting{key: k, since: f.clock.Since(f.began)})
	f.len++
}

// Len returns the number of keys that wait.
func (f *fair) Len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.len
}

// Pop takes the first key of the tenant whose turn it is. There must be one.
func (f *fair) Pop() key {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.turns[f.next]
	first := l.keys[0]
	l.keys = l.keys[1:]
	f.len--
	f.taken++
	if len(l.keys) > 0 {
		f.next = (f.next + 1) % len(f.turns)
		return first.key
	}
	// The last line takes the place of the one that has ended; that changes the order of the
	// lines, but none loses a turn.
	delete(f.lines, l.tenant)
	last := len(f.turns) - 1
	f.turns[f.next] = f.turns[last]
	f.turns[last] = nil
	f.turns = f.turns[:last]
	if f.next >= last {
		f.next = 0
	}
	return first.key
}

// returned counts a popped key that a worker has returned.
func (f *fair) returned() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.taken--
}

func (f *fair) busy() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.len + f.taken
}

func (f *fair) oldest() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	var oldest time.Duration
	for _, l := range f.lines {
		oldest = max(oldest, f.clock.Since(f.began)-l.keys[0].since)
	}
	return oldest
}

func (f *fair) waiting(tenant string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l := f.lines[tenant]; l != nil {
		return len(l.keys)
	}
	return 0
}
