package queue

import (
	"maps"
	"sync"
	"time"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// Reopening is a Queue that can be opened again after ShutDown. It then has the keys that were queued, in back-off,
// or added meanwhile. It starts shut down, and has no goroutine while it is shut down. It is safe for concurrent
// use, but Open may only be called when all taken keys are done.
type Reopening struct {
	config  Config
	forgets bool // it keeps no keys while it is shut down

	mu     sync.RWMutex
	queue  *Queue                     // guarded by mu; the last one that was opened, or nil
	isOpen bool                       // guarded by mu
	kept   map[ownership.UID]struct{} // guarded by mu; keys for when it is opened

	delays  sync.Mutex
	delayed map[ownership.UID]struct{} // guarded by delays; the keys of Retry and After, until they are taken
}

// NewReopening returns an empty queue that is shut down.
func NewReopening(config Config) *Reopening {
	return &Reopening{config: config, kept: make(map[ownership.UID]struct{}), delayed: make(map[ownership.UID]struct{})}
}

// NewForgetting returns a queue that is shut down, and has no keys each time that it is opened. It is for a caller that
// then adds all keys that matter: while it is shut down, keys that are added take no memory.
func NewForgetting(config Config) *Reopening {
	r := NewReopening(config)
	r.forgets = true
	return r
}

// Forgets reports whether NewForgetting has made the queue.
func (r *Reopening) Forgets() bool { return r.forgets }

// Open opens the queue.
func (r *Reopening) Open() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isOpen {
		return
	}
	if r.queue != nil && !r.forgets {
		for uid, ok := r.queue.Take(); ok; uid, ok = r.queue.Take() {
			r.queue.Done(uid)
			r.kept[uid] = struct{}{}
		}
	}
	r.delays.Lock()
	if !r.forgets {
		maps.Copy(r.kept, r.delayed)
	}
	clear(r.delayed)
	r.delays.Unlock()
	r.queue, r.isOpen = New(r.config), true
	for uid := range r.kept {
		r.queue.Add(uid)
	}
	clear(r.kept)
}

// ShutDown makes Take return false, once the waiting keys are taken, until Open.
func (r *Reopening) ShutDown() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.isOpen = false
	if r.queue != nil {
		r.queue.ShutDown()
	}
}

// whileOpen calls f with the queue, or keeps the keys for when it is opened.
func (r *Reopening) whileOpen(f func(q *Queue), uids ...ownership.UID) {
	r.mu.RLock()
	if r.isOpen {
		defer r.mu.RUnlock()
		f(r.queue)
		return
	}
	r.mu.RUnlock()
	if r.forgets {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isOpen { // by now
		f(r.queue)
		return
	}
	for _, uid := range uids {
		r.kept[uid] = struct{}{}
	}
}

// Add is Queue.Add.
func (r *Reopening) Add(uids ...ownership.UID) {
	if len(uids) > 0 {
		r.whileOpen(func(q *Queue) { q.Add(uids...) }, uids...)
	}
}

// Retry is Queue.Retry.
func (r *Reopening) Retry(uid ownership.UID) {
	r.delay(uid)
	r.whileOpen(func(q *Queue) { q.Retry(uid) }, uid)
}

// After is Queue.After.
func (r *Reopening) After(uid ownership.UID, d time.Duration) {
	r.delay(uid)
	r.whileOpen(func(q *Queue) { q.After(uid, d) }, uid)
}

// delay records a delayed key, before it can be taken.
func (r *Reopening) delay(uid ownership.UID) {
	r.delays.Lock()
	defer r.delays.Unlock()
	r.delayed[uid] = struct{}{}
}

// Delayed returns how many keys wait for their back-off to end.
func (r *Reopening) Delayed() int {
	r.delays.Lock()
	defer r.delays.Unlock()
	return len(r.delayed)
}

// Forget is Queue.Forget.
func (r *Reopening) Forget(uid ownership.UID) { r.whileOpen(func(q *Queue) { q.Forget(uid) }) }

// Take is Queue.Take. It returns false at once before the first Open.
func (r *Reopening) Take() (ownership.UID, bool) {
	q := r.last()
	if q == nil {
		return "", false
	}
	uid, ok := q.Take()
	if ok {
		r.delays.Lock()
		delete(r.delayed, uid)
		r.delays.Unlock()
	}
	return uid, ok
}

// Done is Queue.Done.
func (r *Reopening) Done(uid ownership.UID) { r.last().Done(uid) }

// Len is Queue.Len.
func (r *Reopening) Len() int {
	if q := r.last(); q != nil {
		return q.Len() + r.keeps()
	}
	return r.keeps()
}

// Busy is Queue.Busy.
func (r *Reopening) Busy() int {
	if q := r.last(); q != nil {
		return q.Busy() + r.keeps()
	}
	return r.keeps()
}

// Waiting is Queue.Waiting; it does not count the keys that wait for Open.
func (r *Reopening) Waiting(tenant string) int {
	if q := r.last(); q != nil {
		return q.Waiting(tenant)
	}
	return 0
}

// Oldest is Queue.Oldest.
func (r *Reopening) Oldest() time.Duration {
	if q := r.last(); q != nil {
		return q.Oldest()
	}
	return 0
}

// last returns the queue that is open, or was last.
func (r *Reopening) last() *Queue {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.queue
}

func (r *Reopening) keeps() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.kept)
}
