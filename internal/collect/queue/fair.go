package queue

import (
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// fair is the order in which keys are taken: Turns, with the time at which each key began to wait.
//
// It implements workqueue.Queue, whose methods are called under the lock of the workqueue;
// its own lock is for oldest and waiting.
type fair struct {
	tenant func(ownership.UID) string
	clock  clock.PassiveClock
	began  time.Time

	mu    sync.Mutex
	turns Turns[waiting] // guarded by mu, and so is all below
	taken int            // keys that were popped, and not returned
}

type waiting struct {
	key   key
	since time.Duration // from fair.began: a third of a time.Time
}

func newFair(tenant func(ownership.UID) string, c clock.PassiveClock) *fair {
	if tenant == nil {
		tenant = func(ownership.UID) string { return "" }
	}
	return &fair{tenant: tenant, clock: c, began: c.Now()}
}

// Touch does nothing: a key that is added again keeps its place.
func (f *fair) Touch(key) {}

// Push puts a key at the end of its tenant's line.
func (f *fair) Push(k key) {
	// Called before the lock is taken: Tenant reads the graph, which has its own lock.
	tenant := f.tenant(k.uid())
	f.mu.Lock()
	defer f.mu.Unlock()
	f.turns.Push(tenant, waiting{key: k, since: f.clock.Since(f.began)})
}

// Len returns the number of keys that wait.
func (f *fair) Len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.turns.Len()
}

// Pop takes the first key of the tenant whose turn it is. There must be one.
func (f *fair) Pop() key {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.taken++
	return f.turns.Pop().key
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
	return f.turns.Len() + f.taken
}

func (f *fair) oldest() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	var oldest time.Duration
	for first := range f.turns.Firsts() {
		oldest = max(oldest, f.clock.Since(f.began)-first.since)
	}
	return oldest
}

func (f *fair) waiting(tenant string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.turns.LenOf(tenant)
}
