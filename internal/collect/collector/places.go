package collector

import (
	"fmt"
	"sync"
	"time"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// A kind whose reads hang must not take the workers, and the places of the Limiter, that other kinds need (L5). So only a few
// reads of claims on owners of one kind are under way at a time. An object that finds no place releases its worker, and is
// queued again when a place is free.

// quickRead is the longest time after which an answer shows that a kind can be read quickly.
const quickRead = time.Second

// places bounds the reads of each kind. It never blocks.
type places struct {
	few  int // reads at a time, of a kind whose last read was not quick
	many int // of one whose last read was

	mu    sync.Mutex
	kinds map[ownership.Kind]*kindPlaces // guarded by mu
}

// kindPlaces are the reads of one kind.
type kindPlaces struct {
	taken   int
	isQuick bool
	queue   []ownership.UID // the objects that wait for a place, in their order
	queued  map[ownership.UID]bool
}

func newPlaces(few, many int) *places {
	return &places{few: few, many: many, kinds: make(map[ownership.Kind]*kindPlaces)}
}

// begin takes a place for a read on behalf of an object, or makes the object wait for one.
func (p *places) begin(kind ownership.Kind, uid ownership.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.kinds[kind]
	if k == nil {
		k = &kindPlaces{queued: make(map[ownership.UID]bool)}
		p.kinds[kind] = k
	}
	limit := p.few
	if k.isQuick {
		limit = p.many
	}
	switch {
	case k.taken < limit:
		k.taken++
		return true
	case !k.queued[uid]:
		k.queued[uid] = true
		k.queue = append(k.queue, uid)
	}
	return false
}

// end returns a place, and the objects to be queued because of that: one, or all if no read is under way that would bring
// back the others.
func (p *places) end(kind ownership.Kind, took time.Duration) []ownership.UID {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.kinds[kind]
	k.taken--
	k.isQuick = took <= quickRead
	n := len(k.queue)
	if k.taken > 0 {
		n = min(n, 1)
	}
	woken := k.queue[:n]
	k.queue = k.queue[n:]
	for _, uid := range woken {
		delete(k.queued, uid)
	}
	if k.taken == 0 && !k.isQuick {
		delete(p.kinds, kind)
	}
	return woken
}

// inPlace makes a read of a kind on behalf of an object. It returns false if there is no place: the object comes back.
func (c *Collector) inPlace(p *places, kind ownership.Kind, uid ownership.UID, read func() error) (isRead bool, err error) {
	if !p.begin(kind, uid) {
		return false, nil
	}
	began := c.clock.Now()
	defer func() { c.queue.Add(p.end(kind, c.clock.Since(began))...) }()
	return true, read()
}

// slowKindError means that a decision waits for other reads of a kind.
type slowKindError struct{ kind ownership.Kind }

func (e slowKindError) Error() string { return fmt.Sprintf("other reads of %s are under way", e.kind) }
