package crowd

import (
	"slices"
	"strconv"
	"time"
)

// tally counts the deletions of clients.
type tally struct {
	garbage   map[Number]bool // objects that have to be deleted now
	correct   int
	wrong     int
	examples  []string  // of wrong deletions
	first     time.Time // of the correct deletions
	last      time.Time
	latencies []time.Duration
}

// mostExamples is the number of wrong deletions that are named.
const mostExamples = 5

// mostLatencies bounds the kept latencies.
const mostLatencies = 1_000_000

// countLocked counts the deletion of an object by a client, while the object exists: it is correct if the object has
// owners, all of which are gone.
func (s *Store) countLocked(n Number) {
	t := &s.tally
	if !s.isGarbageLocked(n) {
		t.wrong++
		if len(t.examples) < mostExamples {
			t.examples = append(t.examples, s.describe(n))
		}
		return
	}
	t.correct++
	now := s.now()
	t.last = now
	if t.first.IsZero() {
		t.first = now
	}
	if owner, _ := s.Owner(n); len(t.latencies) < mostLatencies {
		t.latencies = append(t.latencies, now.Sub(s.deleted[owner].at))
	}
}

// describe names an object.
func (s *Store) describe(n Number) string {
	c, i := s.at(n)
	return c.kind.Kind + " " + s.namespaceName(c, i) + "/" + string(s.appendName(nil, c, i))
}

// Report is the state of the store, and the deletions by clients: the correct ones since the last Begin, and all wrong
// ones.
type Report struct {
	Objects  int // that exist
	Revision uint64
	Garbage  int // objects that have to be deleted now
	Correct  int // deletions
	Wrong    int
	Examples []string `json:",omitempty"` // wrong deletions
	// First and Last are the times of the first and the last correct deletion, in nanoseconds since 1970; 0 if there
	// was none.
	First, Last int64
	// P50, P99 and Most are latencies of correct deletions, in seconds: from the deletion of the owner until the
	// request arrived.
	P50, P99, Most float64
	// Requests are the numbers of requests since the start, by verb.
	Requests map[string]int
	// Leader is the holder of the Lease that was written last; LeaseEnds is the time at which the Lease expires, in
	// nanoseconds since 1970, by the clock of this server.
	Leader    string
	LeaseEnds int64
}

// Report returns the deletions since the last Begin.
func (s *Store) Report() Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &s.tally
	r := Report{
		Objects: s.Objects - len(s.deleted), Revision: s.revision, Garbage: len(t.garbage),
		Correct: t.correct, Wrong: t.wrong, Examples: slices.Clone(t.examples),
	}
	if !t.first.IsZero() {
		r.First, r.Last = t.first.UnixNano(), t.last.UnixNano()
	}
	if len(t.latencies) > 0 {
		slices.Sort(t.latencies)
		at := func(percent int) float64 { return t.latencies[(len(t.latencies)-1)*percent/100].Seconds() }
		r.P50, r.P99, r.Most = at(50), at(99), at(100)
	}
	return r
}

// Begin forgets the correct deletions that were counted.
func (s *Store) Begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tally = tally{garbage: s.tally.garbage, wrong: s.tally.wrong, examples: s.tally.examples}
}

// formatRevision returns a revision as a resourceVersion.
func formatRevision(revision uint64) string { return strconv.FormatUint(revision, 10) }
