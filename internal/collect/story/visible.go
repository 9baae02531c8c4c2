package story

import (
	"slices"
	"time"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// A reader with restricted rights gets a story as if the hidden objects did not exist: its counts, times and roots
// come from the visible objects alone. The Book does not keep the kind and the namespace of objects beyond its
// limits, so only readers who see everything get counts that include these.

// mostRoots bounds how many roots a summary names.
const mostRoots = 100

// head is the first root of a story in a kind and a namespace.
type head struct {
	Ref

	began time.Time
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
		if first := e.firstTime(); n > 0 && first != 0 {
			h.began = time.Unix(0, first)
		}
		heads = append(heads, h)
	}
	return heads
}

// firstSeen returns the index of the first head that a reader sees; -1 if none.
func firstSeen(heads []head, sees Sees) int {
	if sees == nil {
		return min(0, len(heads)-1)
	}
	return slices.IndexFunc(heads, func(h head) bool { return sees(h.Ref) })
}

// view is a copy of a story without its objects.
type view struct {
	summary Summary // of everything
	heads   []head
	roots   []Ref
	waits   []wait  // not changed any more
	tallies []tally // nil for a reader who sees everything
	guarded uint64
}

// tally counts the objects of a story in a kind and a namespace.
type tally struct {
	first      Ref
	counts     [states]int
	recent     int  // gone within the window of the rate
	isRootOpen bool // whether a root waits, or will wait
	last       int64
	change     uint64
}

// view copies a story for a reader. It does not call Sees.
func (b *Book) view(s *story, sees Sees, now time.Time) view {
	v := view{heads: s.copyHeads(), guarded: s.guarded, summary: Summary{
		ID: s.roots[0].UID, Root: s.roots[0].Ref, More: len(s.roots) - 1, Policy: s.policy, By: s.by, Began: s.began,
		Gone: s.gone(), Waiting: s.counts[stateWaiting], Kept: s.counts[stateKept], Rate: s.rate.perSecond(now), Done: s.isDone(now),
	}}
	roots := s.roots
	if sees == nil {
		roots = roots[:min(len(roots), mostRoots)]
	} else {
		v.tallies = s.tally(now)
	}
	if len(s.roots) > 1 {
		for _, e := range roots {
			v.roots = append(v.roots, e.Ref)
		}
	}
	if v.summary.Done {
		ended := s.last
		v.summary.Ended = &ended
	} else {
		v.waits = b.waits(s, now)
	}
	return v
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
		t.counts[e.state()]++
		if e.gone != 0 && time.Unix(0, e.gone).Unix() > now.Unix()-rateWindow {
			t.recent++
		}
	}
	for _, e := range s.roots {
		t := of(e)
		t.isRootOpen = t.isRootOpen || !e.isOver()
	}
	return all
}

// hasChanged reports whether a visible part has changed after a number of changes.
func (v *view) hasChanged(change uint64, sees Sees) bool {
	return sees == nil || v.guarded > change ||
		slices.ContainsFunc(v.tallies, func(one tally) bool { return one.change > change && sees(one.first) })
}

// summaryFor returns the summary as a reader may see it; false if they may see no root.
func (v *view) summaryFor(sees Sees, now time.Time) (Summary, bool) {
	s := v.summary
	if sees == nil {
		s.Roots, s.WaitsFor = v.roots, waitsFor(v.waits, nil)
		return s, true
	}
	n := firstSeen(v.heads, sees)
	if n < 0 {
		return Summary{}, false
	}
	s.ID, s.Root, s.Began = v.heads[n].UID, v.heads[n].Ref, v.heads[n].began
	if roots := visible(v.roots, sees); len(roots) > 1 {
		s.Roots = roots[:min(len(roots), mostRoots)]
		s.More = len(roots) - 1
	} else {
		s.Roots, s.More = nil, 0
	}
	sum := sumOf(v.tallies, sees)
	s.Gone, s.Waiting, s.Kept = sum.counts[stateGone], sum.counts[stateWaiting], sum.counts[stateKept]
	s.Rate = float64(sum.recent) / rateWindow
	last := time.Unix(0, sum.last)
	if s.Ended = nil; s.Waiting == 0 && !sum.isRootOpen && now.Sub(last) >= settle {
		s.Done, s.Ended = true, &last
		return s, true
	}
	s.Done = false
	s.WaitsFor = waitsFor(v.waits, sees)
	return s, true
}

// sumOf sums the tallies that a reader may see.
func sumOf(tallies []tally, sees Sees) (sum tally) {
	for _, one := range tallies {
		if !sees(one.first) {
			continue
		}
		for state, n := range one.counts {
			sum.counts[state] += n
		}
		sum.recent += one.recent
		sum.last, sum.isRootOpen = max(sum.last, one.last), sum.isRootOpen || one.isRootOpen
	}
	return sum
}

// object returns an object without the parts that the reader may not see.
func (e *entry) object(sees Sees) Object {
	o := Object{Ref: e.Ref, Owners: e.owners, In: e.in, Marked: at(e.marked), Gone: at(e.gone), Refusal: e.refusal.view()}
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
