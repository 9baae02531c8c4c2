package collector

import (
	"slices"
	"strings"
	"time"

	"github.com/coppice-dev/coppice/internal/ownership"
)

// Breaker says how much may be deleted of one kind before somebody has to look
// at it. The zero value lets everything pass.
type Breaker struct {
	// Share is the part of a kind's objects that may be deleted within Window: 0.1
	// is a tenth. 0 turns the breaker off.
	Share float64
	// Window is the time in which deletions are added up. Default: one minute.
	Window time.Duration
	// Min is how many deletions of a kind within Window are let pass in any case.
	// Default: 100.
	Min int
}

// breaker counts deletions, and pauses those of a kind when there are too many
// (Breaker). It stays so until somebody resumes. It has no clock and no lock: the
// time comes as an argument, and never goes backwards.
type breaker struct {
	config Breaker
	kinds  map[ownership.Kind]*circuit
}

// windowSlots is into how many parts a window is cut. It moves by one of them at
// a time, so deletions are remembered for a tenth of a window too long at most.
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

// slot is what happened in one part of a window.
type slot struct {
	number  int64
	deleted int
	objects int // the most that there were of the kind
}

func newBreaker(config Breaker) *breaker {
	if config.Window <= 0 {
		config.Window = time.Minute
	}
	if config.Min <= 0 {
		config.Min = 100
	}
	return &breaker{config: config, kinds: make(map[ownership.Kind]*circuit)}
}

// permission is what the breaker says of one deletion.
type permission uint8

const (
	// granted deletions are counted.
	granted permission = iota
	// refused deletions are of a kind that is paused.
	refused
	// tripped is the deletion that was one too many: from here on the kind is paused.
	tripped
)

// ask asks for permission to delete an object of a kind of which there are so many.
func (b *breaker) ask(kind ownership.Kind, objects int, now time.Time) permission {
	if b.config.Share <= 0 {
		return granted
	}
	c := b.kinds[kind]
	if c == nil {
		c = &circuit{}
		b.kinds[kind] = c
	}
	switch {
	case c.paused:
		return refused
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

// giveBack takes back a permission that came to nothing: the request was refused.
func (b *breaker) giveBack(kind ownership.Kind, now time.Time) {
	if c := b.kinds[kind]; c != nil {
		if s := c.slot(b.number(now)); s.deleted > 0 {
			s.deleted--
		}
	}
}

// resume lets the deletions of a kind go on. For one window they are not counted:
// whoever resumes has seen that they are right. It returns false when the kind
// was not paused.
func (b *breaker) resume(kind ownership.Kind, now time.Time) bool {
	c := b.kinds[kind]
	if c == nil || !c.paused {
		return false
	}
	*c = circuit{exempt: now.Add(b.config.Window)}
	return true
}

// Pause is a kind whose deletions are paused.
type Pause struct {
	Kind    string    `json:"kind"` // "ReplicaSet.apps"
	Since   time.Time `json:"since"`
	Deleted int       `json:"deleted"` // objects of the kind within the window before that
	Objects int       `json:"objects"` // of the kind, at the beginning of it
}

// pauses are the kinds that are paused, sorted.
func (b *breaker) pauses() []Pause {
	pauses := []Pause{}
	for kind, c := range b.kinds {
		if c.paused {
			pauses = append(pauses, Pause{Kind: kind.String(), Since: c.since, Deleted: c.deleted, Objects: c.objects})
		}
	}
	slices.SortFunc(pauses, func(a, b Pause) int { return strings.Compare(a.Kind, b.Kind) })
	return pauses
}

// number counts the parts of windows since the beginning of time.
func (b *breaker) number(now time.Time) int64 {
	return now.UnixNano() / max(1, int64(b.config.Window)/windowSlots)
}

// slot is the one with a number, emptied if it was used for another.
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
