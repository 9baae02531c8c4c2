package collector

import (
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// Breaker limits how much may be deleted of one kind before the deletions are paused. The zero
// value never pauses.
type Breaker struct {
	// Share is the fraction of a kind's objects that may be deleted within Window: 0.1 is a
	// tenth. 0 turns the breaker off.
	Share float64
	// Window is the time in which deletions are added up. Default: one minute.
	Window time.Duration
	// Min is the number of deletions of a kind within Window that are allowed in any case.
	// Default: 100.
	Min int
}

// breaker pauses the deletions of a kind when there are too many of them within a time
// window, until they are resumed by hand.
//
//  1. Before each DELETE the collector asks for permission (allow), with the number of known
//     objects of the kind.
//  2. Permissions are counted in a window of time that moves on by a tenth of itself. A
//     permission whose request was refused is returned (giveBack).
//  3. A deletion above max(Min, Share of the most objects in the window) trips the
//     breaker: the kind is paused, and all further deletions of it are denied.
//  4. resume ends the pause, and counts nothing for one window.
//
// The denied deletions are not remembered: after resume the collector reconsiders all
// unsettled objects. It is safe for concurrent use.
type breaker struct {
	config Breaker
	clock  clock.PassiveClock

	mu    sync.Mutex
	kinds map[ownership.Kind]*circuit // guarded by mu
}

// windowSlots is the number of slots of a window. The window moves by one slot at a time, so
// deletions count for at most a tenth of a window too long.
const windowSlots = 10

// circuit is the breaker of one kind.
type circuit struct {
	slots   [windowSlots]slot // by number, modulo their count
	paused  bool
	since   time.Time // when it was paused
	deleted int       // within the window then
	objects int       // of the kind then
	exempt  time.Time // after a resume: nothing is counted until then
}

// slot counts in one part of a window.
type slot struct {
	number  int64
	deleted int
	objects int // the most that there were of the kind
}

// newBreaker returns a breaker without paused kinds.
func newBreaker(config Breaker, clock clock.PassiveClock) *breaker {
	if config.Window <= 0 {
		config.Window = time.Minute
	}
	if config.Min <= 0 {
		config.Min = 100
	}
	return &breaker{config: config, clock: clock, kinds: make(map[ownership.Kind]*circuit)}
}

// window returns the time in which deletions are added up.
func (b *breaker) window() time.Duration { return b.config.Window }

// permission is the answer of the breaker about one deletion.
type permission uint8

const (
	// granted deletions are counted.
	granted permission = iota
	// denied deletions are of a kind that is paused.
	denied
	// tripped is the first deletion above the limit: from here on the kind is paused.
	tripped
)

// allow asks for permission to delete an object of a kind. count returns how many objects
// there are of the kind; it is called without a lock, and not if the breaker is off.
func (b *breaker) allow(kind ownership.Kind, count func(ownership.Kind) int) permission {
	if b.config.Share <= 0 {
		return granted
	}
	objects := count(kind)
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.kinds[kind]
	if c == nil {
		c = &circuit{}
		b.kinds[kind] = c
	}
	now := b.clock.Now()
	switch {
	case c.paused:
		return denied
	case now.Before(c.exempt):
		return granted
	}
	s := c.slot(b.number(now))
	s.objects = max(s.objects, objects)
	deleted, most := c.sum(b.number(now))
	if deleted+1 > max(b.config.Min, int(b.config.Share*float64(most))) {
		c.paused, c.since, c.deleted, c.objects = true, now, deleted, most
		return tripped
	}
	s.deleted++
	return granted
}

// giveBack takes back a permission that was not used: the request was refused.
func (b *breaker) giveBack(kind ownership.Kind) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.kinds[kind]; c != nil {
		if s := c.slot(b.number(b.clock.Now())); s.deleted > 0 {
			s.deleted--
		}
	}
}

// resume ends the pause of a kind. For one window its deletions are not counted: the user who
// resumes them has checked that they are right. It returns false when the kind was not paused.
func (b *breaker) resume(kind ownership.Kind) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.kinds[kind]
	if c == nil || !c.paused {
		return false
	}
	*c = circuit{exempt: b.clock.Now().Add(b.config.Window)}
	return true
}

// pauses returns the kinds that are paused, sorted.
func (b *breaker) pauses() []report.Pause {
	b.mu.Lock()
	defer b.mu.Unlock()
	pauses := []report.Pause{}
	for kind, c := range b.kinds {
		if c.paused {
			pauses = append(pauses, report.Pause{Kind: kind.String(), Since: c.since, Deleted: c.deleted, Objects: c.objects})
		}
	}
	slices.SortFunc(pauses, func(a, b report.Pause) int { return strings.Compare(a.Kind, b.Kind) })
	return pauses
}

// number counts the parts of windows since the epoch of Unix time.
func (b *breaker) number(now time.Time) int64 {
	return now.UnixNano() / max(1, int64(b.config.Window)/windowSlots)
}

// slot returns the slot of a number, emptied if it was used for another.
func (c *circuit) slot(number int64) *slot {
	s := &c.slots[number%windowSlots]
	if s.number != number {
		*s = slot{number: number}
	}
	return s
}

// sum adds up the window that ends with a slot.
func (c *circuit) sum(number int64) (deleted, objects int) {
	for _, s := range c.slots {
		if number-s.number < windowSlots {
			deleted += s.deleted
			objects = max(objects, s.objects)
		}
	}
	return deleted, objects
}
