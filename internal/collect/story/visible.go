package story

import (
	"slices"
	"time"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// A reader with restricted rights gets a story as if the hidden objects did not exist: its counts, times and roots
// come from the visible objects alone. The Book does not keep the kind and the namespace of objects beyond its
// limits, so only readers who see everything get counts that include these.

// head is the first root of a story in a kind and a namespace.
type head struct {
	Ref

	began time.Time
}

// addRoot adds a root.
func (s *story) addRoot(e *entry) {
	s.roots = append(s.roots, e)
	if !slices.ContainsFunc(s.heads, func(other *entry) bool { return placeOf(other) == placeOf(e) }) {
		s.heads = append(s.heads, e)
	}
}

// place is the unit of rights: a reader may see all objects of a kind in a namespace, or none.
type place struct {
	kind, namespace string
	home            ownership.UID
}

func placeOf(e *entry) place { return place{e.Kind, e.Namespace, e.NamespaceUID} }

func (s *story) copyHeads() []head {
	heads := make([]head, 0, len(s.heads))
	for n, e := range s.heads {
		h := head{Ref: e.Ref, began: s.began}
		if first := firstTime(e); n > 0 && first != 0 {
			h.began = time.Unix(0, first)
		}
		heads = append(heads, h)
	}
	return heads
}

// firstTime returns the time when an object was marked, or else when it was gone.
func firstTime(e *entry) int64 {
	if e.marked != 0 {
		return e.marked
	}
	return e.gone
}

// firstSeen returns the index of the first head that a reader sees; -1 if none.
func firstSeen(heads []head, sees Sees) int {
	if sees == nil {
		return min(0, len(heads)-1)
	}
	return slices.IndexFunc(heads, func(h head) bool { return sees(h.Ref) })
}

// headOf returns the first root and the other heads of the story with an object among its heads. It makes no copies
// for a story with one head: the answer about a hidden story must not take longer than about an absent one.
func (b *Book) headOf(id ownership.UID) (first Ref, others []head, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.stories[id]
	if m := b.members[id]; s == nil && m.entry != nil && slices.Contains(m.story.heads, m.entry) {
		s = m.story
	}
	if s == nil {
		return Ref{}, nil, false
	}
	if len(s.heads) > 1 {
		others = s.copyHeads()[1:]
	}
	return s.heads[0].Ref, others, true
}

// rootOf returns the first root of the story whose first visible root, for a reader, is an object; false if there is
// no such story.
func (b *Book) rootOf(id ownership.UID, sees Sees) (ownership.UID, bool) {
	first, others, known := b.headOf(id)
	switch {
	case !known:
		return "", false
	case sees == nil || sees(first):
		return first.UID, first.UID == id
	}
	n := firstSeen(others, sees)
	return first.UID, n >= 0 && others[n].UID == id
}

// homesOf returns the containers of entries, their namespaces or definitions, whose rights the caller has to check.
func (b *Book) homesOf(entries []entry, sees Sees) map[ownership.UID]Ref {
	if sees == nil {
		return nil
	}
	homes := map[ownership.UID]Ref{}
	for n := range entries {
		if home := b.members[entries[n].in].entry; home != nil {
			homes[home.UID] = home.Ref
		}
	}
	return homes
}

// telling is the part of a story that is read under the lock.
type telling struct {
	summary Summary
	heads   []head
	roots   []Ref
	waits   []wait  // not changed any more
	tallies []tally // nil for a reader who sees everything
	guarded uint64
}

// tally counts the objects of a story in a kind and a namespace.
type tally struct {
	first               Ref
	gone, waiting, kept int
	lately              int  // gone within the window of the rate
	isRootOpen          bool // whether a root waits, or will wait
	last                int64
	change              uint64
}

// tell reads a story.
func (b *Book) tell(s *story, sees Sees, now time.Time) telling {
	s.advance(now)
	sum := 0
	for _, n := range s.goneAt {
		sum += n
	}
	t := telling{heads: s.copyHeads(), guarded: s.guarded, summary: Summary{
		ID: s.roots[0].UID, Root: s.roots[0].Ref, Policy: s.policy, By: s.by, Began: s.began, More: len(s.roots) - 1,
		Gone: s.gone, Waiting: s.waiting, Kept: s.kept, Rate: float64(sum) / rateWindow, Done: s.isDone(now),
	}}
	roots := s.roots
	if sees == nil {
		roots = roots[:min(len(roots), mostRoots)]
	} else {
		t.tallies = s.tally(now)
	}
	if len(s.roots) > 1 {
		for _, e := range roots {
			t.roots = append(t.roots, e.Ref)
		}
	}
	if t.summary.Done {
		ended := s.last
		t.summary.Ended = &ended
	} else {
		t.waits = b.waits(s, now)
	}
	return t
}

// tally counts the objects of a story by kind and namespace.
func (s *story) tally(now time.Time) []tally {
	var all []tally
	at := map[place]int{}
	of := func(e *entry) *tally {
		n, known := at[placeOf(e)]
		if !known {
			n = len(all)
			at[placeOf(e)] = n
			all = append(all, tally{first: e.Ref})
		}
		return &all[n]
	}
	for _, e := range s.entries {
		t := of(e)
		t.last, t.change = max(t.last, e.last), max(t.change, e.change)
		switch {
		case e.gone != 0:
			t.gone++
			if time.Unix(0, e.gone).Unix() > now.Unix()-rateWindow {
				t.lately++
			}
		case e.kept:
			t.kept++
		case e.marked != 0:
			t.waiting++
		}
	}
	for _, e := range s.roots {
		t := of(e)
		t.isRootOpen = t.isRootOpen || !e.isOver()
	}
	return all
}

// hasChanged reports whether a visible part has changed after a number of changes.
func (t *telling) hasChanged(change uint64, sees Sees) bool {
	return sees == nil || t.guarded > change ||
		slices.ContainsFunc(t.tallies, func(one tally) bool { return one.change > change && sees(one.first) })
}

// seen returns the summary as a reader may see it; false if they may see no root.
func (t *telling) seen(sees Sees, now time.Time) (Summary, bool) {
	s := t.summary
	if sees == nil {
		s.Roots, s.WaitsFor = t.roots, waitsFor(t.waits, nil)
		return s, true
	}
	n := firstSeen(t.heads, sees)
	if n < 0 {
		return Summary{}, false
	}
	s.ID, s.Root, s.Began = t.heads[n].UID, t.heads[n].Ref, t.heads[n].began
	if roots := visible(t.roots, sees); len(roots) > 1 {
		s.Roots = roots[:min(len(roots), mostRoots)]
		s.More = len(roots) - 1
	} else {
		s.Roots, s.More = nil, 0
	}
	var all tally
	for _, one := range t.tallies {
		if sees(one.first) {
			all.gone, all.waiting, all.kept, all.lately = all.gone+one.gone, all.waiting+one.waiting, all.kept+one.kept, all.lately+one.lately
			all.last, all.isRootOpen = max(all.last, one.last), all.isRootOpen || one.isRootOpen
		}
	}
	s.Gone, s.Waiting, s.Kept, s.Rate = all.gone, all.waiting, all.kept, float64(all.lately)/rateWindow
	last := time.Unix(0, all.last)
	if s.Ended = nil; all.waiting == 0 && !all.isRootOpen && now.Sub(last) >= settle {
		s.Done, s.Ended = true, &last
		return s, true
	}
	s.Done = false
	s.WaitsFor = waitsFor(t.waits, sees)
	return s, true
}
