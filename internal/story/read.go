package story

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/coppice-dev/coppice/internal/ownership"
)

// Sees reports whether a reader may see the objects of the kind and in the namespace of an object: a namespace that has
// the same name, and another UID, is another one. It is not called while the Book is locked.
type Sees func(object Ref) bool

// mostRoots bounds how many roots a summary names.
const mostRoots = 100

// Position is how far somebody has read in a story: the changes of its objects that they know.
type Position int

// End is the position of who wants to know of no objects.
const End Position = math.MaxInt

// telling is what is read of a story under the lock.
type telling struct {
	summary Summary
	waits   []wait // not changed any more
}

// List returns the stories, the latest first, of which the reader may see the root.
func (b *Book) List(sees Sees, now time.Time) []Summary {
	all, _, _ := b.Since(0, sees, now)
	slices.SortStableFunc(all, func(x, y Summary) int { return y.Began.Compare(x.Began) })
	return all
}

// Since returns the stories that have changed after a number of changes, the stories that are not told any
// more, and the number of changes now. A story that has ended by nothing happening counts as changed then.
func (b *Book) Since(change uint64, sees Sees, now time.Time) (changed []Summary, removed []ownership.UID, at uint64) {
	roots, removed, at := b.rootsSince(change)
	// What is not shown is not read. A story that changes meanwhile is read again, after at.
	ids := slices.DeleteFunc(roots, func(r Ref) bool { return !sees(r) })
	b.mu.Lock()
	var found []telling
	for _, root := range ids {
		if s := b.stories[root.UID]; s != nil {
			found = append(found, b.tell(s, now))
		}
	}
	b.mu.Unlock()
	for _, t := range found {
		if s, seen := t.seen(sees); seen {
			changed = append(changed, s)
		}
	}
	return changed, removed, at
}

// rootsSince returns the roots of the stories that have changed after a number of changes, the stories that are gone
// since, and the number of changes now.
func (b *Book) rootsSince(change uint64) (roots []Ref, removed []ownership.UID, at uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.order {
		if s.change > change {
			roots = append(roots, s.roots[0].Ref)
		}
	}
	for _, r := range b.removed {
		if r.change > change && change > 0 {
			removed = append(removed, r.id)
		}
	}
	return roots, removed, b.changes
}

// root returns the root of a story.
func (b *Book) root(id ownership.UID) (Ref, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.stories[id]
	if s == nil {
		return Ref{}, false
	}
	return s.roots[0].Ref, true
}

// Story returns a story, and its objects that have changed since a position, both as far as the reader may see
// them, and the next position. A position of 0 is the beginning: all objects are returned. Nothing is read for readers
// who may not see the root.
func (b *Book) Story(id ownership.UID, since Position, sees Sees, now time.Time) (s Summary, objects []Object, next Position, ok bool) {
	if root, known := b.root(id); !known || !sees(root) {
		return Summary{}, nil, 0, false
	}
	b.mu.Lock()
	found := b.stories[id]
	if found == nil {
		b.mu.Unlock()
		return Summary{}, nil, 0, false
	}
	told := b.tell(found, now)
	entries := found.changed(since)
	next = Position(found.base + len(found.log))
	b.mu.Unlock()
	if s, ok = told.seen(sees); !ok {
		return Summary{}, nil, 0, false
	}
	objects = make([]Object, 0, len(entries))
	for n := range entries {
		if sees(entries[n].Ref) {
			objects = append(objects, entries[n].object(sees))
		}
	}
	return s, objects, next, true
}

// Changed returns a channel that is closed at the next change after the given number of them; it is closed
// already if there was one.
func (b *Book) Changed(after uint64) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.changes > after {
		closed := make(chan struct{})
		close(closed)
		return closed
	}
	if b.wake == nil {
		b.wake = make(chan struct{})
	}
	return b.wake
}

// Changes returns the number of changes so far.
func (b *Book) Changes() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changes
}

// changed returns copies of the entries that have changed since a position, each once.
func (s *story) changed(since Position) []entry {
	var found []entry
	if since == End {
		return nil
	}
	if int(since) < s.base || since == 0 {
		for _, e := range s.entries {
			found = append(found, *e)
		}
		return found
	}
	places := slices.Clone(s.log[min(len(s.log), int(since)-s.base):])
	slices.Sort(places)
	for _, at := range slices.Compact(places) {
		found = append(found, *s.entries[at])
	}
	return found
}

// tell reads a story.
func (b *Book) tell(s *story, now time.Time) telling {
	s.advance(now)
	sum := 0
	for _, n := range s.goneAt {
		sum += n
	}
	t := telling{summary: Summary{
		ID: s.roots[0].UID, Root: s.roots[0].Ref, Policy: s.policy, By: s.by, Began: s.began, More: len(s.roots) - 1,
		Gone: s.gone, Waiting: s.waiting, Kept: s.kept, Rate: float64(sum) / rateWindow, Done: s.isDone(now),
	}}
	if len(s.roots) > 1 {
		for _, e := range s.roots[:min(len(s.roots), mostRoots)] {
			t.summary.Roots = append(t.summary.Roots, e.Ref)
		}
	}
	if t.summary.Done {
		ended := s.last
		t.summary.Ended = &ended
		return t
	}
	t.waits = b.waits(s, now)
	return t
}

// seen returns the summary as a reader may see it; false if they may not see the root.
func (t telling) seen(sees Sees) (Summary, bool) {
	s := t.summary
	if !sees(s.Root) {
		return Summary{}, false
	}
	s.Roots = slices.DeleteFunc(s.Roots, func(r Ref) bool { return !sees(r) })
	s.WaitsFor = waitsFor(t.waits, sees)
	return s, true
}

// object returns what a reader may see of an object that they may see.
func (e *entry) object(sees Sees) Object {
	o := Object{Ref: e.Ref, Owners: e.owners, In: e.in, Marked: at(e.marked), Gone: at(e.gone)}
	if e.kept {
		o.Fate, o.Protected = FateKept, e.protected
		o.KeptBy, o.Lost = visible(e.keptBy, sees), visible(e.lost, sees)
	}
	if e.gone != 0 {
		return o
	}
	if e.due != 0 {
		o.GraceUntil = new(time.Unix(e.due, 0).UTC())
	}
	for _, f := range e.finalizers {
		if isForeign(f) {
			o.Holds = append(o.Holds, Hold{f})
		}
	}
	return o
}

func visible(refs []Ref, sees Sees) []Ref {
	return slices.DeleteFunc(slices.Clone(refs), func(r Ref) bool { return !sees(r) })
}

func at(nano int64) *time.Time {
	if nano == 0 {
		return nil
	}
	return new(time.Unix(0, nano).UTC())
}

// Text returns a story as text, for a chat or a ticket.
func (s *Summary) Text(objects []Object, now time.Time) string {
	var text strings.Builder
	state, until := "being deleted", now
	if s.Done {
		state, until = "deleted", *s.Ended
	}
	fmt.Fprintf(&text, "%s: %s (%s)", s.Root, state, s.Policy)
	if s.More > 0 {
		fmt.Fprintf(&text, ", with %d more that were asked for at once", s.More)
	}
	fmt.Fprintf(&text, "\nbegan %s, %s ago", s.Began.UTC().Format(time.RFC3339), now.Sub(s.Began).Round(time.Second))
	if s.Done {
		fmt.Fprintf(&text, ", took %s", until.Sub(s.Began).Round(time.Millisecond))
	}
	if s.By != nil {
		fmt.Fprintf(&text, ", asked by %s", s.By.User)
		if s.By.Agent != "" {
			fmt.Fprintf(&text, " with %s", s.By.Agent)
		}
	}
	fmt.Fprintf(&text, "\n%d gone, %d waiting, %d kept\n", s.Gone, s.Waiting, s.Kept)
	if s.WaitsFor != "" {
		fmt.Fprintf(&text, "waits for %s\n", s.WaitsFor)
	}
	for _, o := range slices.SortedFunc(slices.Values(objects), func(a, b Object) int { return strings.Compare(a.String(), b.String()) }) {
		switch {
		case o.Fate == FateKept && len(o.KeptBy) > 0:
			fmt.Fprintf(&text, "stays: %s, owned by %s\n", o.Ref, o.KeptBy[0])
		case o.Protected:
			fmt.Fprintf(&text, "stays: %s, which is protected\n", o.Ref)
		case o.Fate == FateKept:
			fmt.Fprintf(&text, "stays: %s\n", o.Ref)
		}
	}
	return text.String()
}
