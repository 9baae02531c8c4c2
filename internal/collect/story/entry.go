package story

import (
	"slices"
	"time"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// settle is how long a story must be quiet to be done: dependents are deleted after their owners are gone, so that
// for a moment the story waits for nothing.
const settle = time.Second

// story is one deletion with its objects.
type story struct {
	origin

	roots   []*entry
	heads   []*entry // the first root of each kind in each namespace; readers see all roots of a place, or none
	entries []*entry
	counts  [states]int // of the entries
	further further
	last    time.Time // time of the last change
	change  uint64    // of the Book, when the story changed last
	guarded uint64    // of the Book, when a protected object that the story waits for changed last
	journal journal
	rate    rate
	waits   recentWaits
}

// origin is how a story began.
type origin struct {
	key    string // of the request
	by     *By    // nil: unknown
	policy string
	began  time.Time
}

// originOf returns the origin of a story that begins with an object in a phase; the request may be unknown.
func originOf(r *Request, phase ownership.Phase, now time.Time) origin {
	o := origin{began: now}
	if r != nil {
		o.key, o.by, o.policy = r.Key, &r.By, r.Policy
	}
	switch {
	case o.policy != "":
	case phase == ownership.Foreground:
		o.policy = "Foreground"
	case phase == ownership.Orphaning:
		o.policy = "Orphan"
	default:
		o.policy = "Background"
	}
	return o
}

// further counts the objects of a story that have no entry.
type further struct{ all, gone int }

// state is the state of an object in a story.
type state uint8

const (
	stateOpen    state = iota // neither marked nor kept: it was protected or refused, and will be deleted
	stateKept                 // it stays
	stateWaiting              // it is marked, or the server refuses a request about it
	stateGone
	states // the number of states
)

// entry is an object of a story. Times are in nanoseconds since 1970; 0 means unset.
type entry struct {
	Ref

	at           int // its place in the story
	owners       []Owner
	in           ownership.UID
	marked, gone int64
	due          int64 // in seconds since 1970
	kept         bool
	protected    bool // why it is kept
	keptBy, lost []Ref
	finalizers   []string
	phase        ownership.Phase
	refusal      *refused // the last one, also when it has ended; nil if there was none
	bytes        int      // of its texts, as the Book counts them
	last         int64
	change       uint64 // of the Book, when the entry changed last
}

func (e *entry) state() state {
	switch {
	case e.gone != 0:
		return stateGone
	case e.kept:
		return stateKept
	case e.marked != 0 || e.refusal.lasts():
		return stateWaiting
	}
	return stateOpen
}

// isOver reports whether the object waits neither now nor later.
func (e *entry) isOver() bool { return e.gone != 0 || e.kept }

// firstTime returns the time when an object was marked, or else when it was gone.
func (e *entry) firstTime() int64 {
	if e.marked != 0 {
		return e.marked
	}
	return e.gone
}

// add adds an entry to the story.
func (s *story) add(e *entry) {
	e.at = len(s.entries)
	s.entries = append(s.entries, e)
	s.counts[e.state()]++
}

// addRoot makes an entry of the story one of its roots.
func (s *story) addRoot(e *entry) {
	s.roots = append(s.roots, e)
	if !slices.ContainsFunc(s.heads, func(head *entry) bool { return placeOf(head) == placeOf(e) }) {
		s.heads = append(s.heads, e)
	}
}

// update changes the state of an entry of the story.
func (s *story) update(e *entry, change func(e *entry)) {
	s.counts[e.state()]--
	change(e)
	s.counts[e.state()]++
}

// size is the number of objects, with an entry or without.
func (s *story) size() int { return len(s.entries) + s.further.all }

// gone is the number of removed objects, with an entry or without.
func (s *story) gone() int { return s.counts[stateGone] + s.further.gone }

// isDone reports whether the story has ended.
func (s *story) isDone(now time.Time) bool {
	return s.counts[stateWaiting] == 0 && now.Sub(s.last) >= settle &&
		!slices.ContainsFunc(s.roots, func(e *entry) bool { return !e.isOver() })
}
