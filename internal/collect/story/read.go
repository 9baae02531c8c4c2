package story

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/coppice-dev/coppice/internal/rules/escape"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// Sees reports whether a reader may see objects of the kind and in the namespace of an object. A namespace with the
// same name and another UID is a different one. Sees is not called while the Book is locked. It is nil for a reader
// who sees everything; other readers get stories as if no other objects existed (visible.go).
type Sees func(object Ref) bool

// mostRoots bounds how many roots a summary names.
const mostRoots = 100

// Position is how far a reader has read in a story: the number of changes that the reader knows.
type Position int

// End is the position of a reader who wants no objects.
const End Position = math.MaxInt

// List returns the stories, the latest first, of which the reader may see a root.
func (b *Book) List(sees Sees, now time.Time) []Summary {
	all, _, _ := b.Since(0, sees, now)
	slices.SortStableFunc(all, func(x, y Summary) int { return y.Began.Compare(x.Began) })
	return all
}

// Since returns the stories that have changed after a number of changes, the stories that were forgotten or merged
// since, and the current number of changes. A story that has ended because nothing happened any more counts as
// changed at that time.
func (b *Book) Since(change uint64, sees Sees, now time.Time) (changed []Summary, removed []ownership.UID, at uint64) {
	stories, removals, at := b.headsSince(change)
	// Hidden stories are not read. A story that changes meanwhile is read again, after at.
	stories = slices.DeleteFunc(stories, func(heads []head) bool { return firstSeen(heads, sees) < 0 })
	b.mu.Lock()
	var found []telling
	for _, heads := range stories {
		if s := b.stories[heads[0].UID]; s != nil {
			found = append(found, b.tell(s, sees, now))
		}
	}
	b.mu.Unlock()
	for n := range found {
		if s, seen := found[n].seen(sees, now); seen && found[n].hasChanged(change, sees) {
			changed = append(changed, s)
		}
	}
	for _, r := range removals {
		if n := firstSeen(r.heads, sees); n >= 0 {
			removed = append(removed, r.heads[n].UID)
		}
	}
	return changed, removed, at
}

// headsSince returns the heads of the stories that have changed after a number of changes, the stories that were
// dropped since, and the current number of changes.
func (b *Book) headsSince(change uint64) (stories [][]head, removed []removal, at uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.order {
		if s.change > change {
			stories = append(stories, s.copyHeads())
		}
	}
	for _, r := range b.removed {
		if r.change > change && change > 0 {
			removed = append(removed, r)
		}
	}
	return stories, removed, b.changes
}

// Story returns a story, its objects that have changed since a position, and the next position. It leaves out objects
// that the reader may not see. Position 0 is the beginning: all objects are returned. A reader who sees none of the
// roots gets nothing.
func (b *Book) Story(id ownership.UID, since Position, sees Sees, now time.Time) (s Summary, objects []Object, next Position, ok bool) {
	root, known := b.rootOf(id, sees)
	if !known {
		return Summary{}, nil, 0, false
	}
	b.mu.Lock()
	found := b.stories[root]
	if found == nil {
		b.mu.Unlock()
		return Summary{}, nil, 0, false
	}
	told := b.tell(found, sees, now)
	entries := found.changed(since)
	homes := b.homesOf(entries, sees)
	next = Position(found.base + len(found.log))
	b.mu.Unlock()
	if s, ok = told.seen(sees, now); !ok {
		return Summary{}, nil, 0, false
	}
	objects = make([]Object, 0, len(entries))
	for n := range entries {
		e := &entries[n]
		if sees != nil && !sees(e.Ref) {
			continue
		}
		if home, known := homes[e.in]; sees != nil && (!known || !sees(home)) {
			e.in = ""
		}
		objects = append(objects, e.object(sees))
	}
	return s, objects, next, true
}

// Changed returns a channel that is closed at the next change after the given number of changes; it is already closed
// if there was such a change.
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

// object returns an object without the parts that the reader may not see.
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
	if sees == nil {
		return refs
	}
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
	say := func(format string, args ...any) { text.WriteString(escape.Sprintf(format, args...)) }
	state, until := "being deleted", now
	if s.Done {
		state, until = "deleted", *s.Ended
	}
	say("%s: %s (%s)", s.Root, state, s.Policy)
	if s.More > 0 {
		say(", with %d more that were asked for at once", s.More)
	}
	say("\nbegan %s, %s ago", s.Began.UTC().Format(time.RFC3339), now.Sub(s.Began).Round(time.Second))
	if s.Done {
		say(", took %s", until.Sub(s.Began).Round(time.Millisecond))
	}
	if s.By != nil {
		say(", asked by %s", s.By.User)
		if s.By.Agent != "" {
			say(" with %s", s.By.Agent)
		}
	}
	say("\n%d gone, %d waiting, %d kept\n", s.Gone, s.Waiting, s.Kept)
	if s.WaitsFor != "" {
		say("waits for %s\n", s.WaitsFor)
	}
	for _, o := range slices.SortedFunc(slices.Values(objects), func(a, b Object) int { return strings.Compare(a.String(), b.String()) }) {
		switch {
		case o.Fate == FateKept && len(o.KeptBy) > 0:
			say("stays: %s, owned by %s\n", o.Ref, o.KeptBy[0])
		case o.Protected:
			say("stays: %s, which is protected\n", o.Ref)
		case o.Fate == FateKept:
			say("stays: %s\n", o.Ref)
		}
	}
	return text.String()
}
