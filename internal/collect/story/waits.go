package story

import (
	"time"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

const (
	// fewEntries is the largest story whose waits are computed anew at each change; for larger ones they are computed
	// once per waitsAge. The collector is blocked meanwhile.
	fewEntries = 500
	waitsAge   = time.Second
)

// leaf is why an object waits. Causes come before their effects.
type leaf uint8

const (
	onProtected leaf = iota // of an object that is not deleted because it is protected
	onRefused               // of an object that the server refuses to delete or to change
	onFinalizer             // of another controller
	onGrace                 // a pod, to stop
	onRemoval               // no known reason
	onOthers                // dependents, or contents
)

// wait groups the waiting objects of a kind in a namespace that wait for the same leaf, or the protected objects that
// they wait for.
type wait struct {
	on     leaf
	holder string // the finalizer, or the refuser

	first Ref
	count int
	due   int64 // the latest, in seconds since 1970
}

// isLike reports whether both wait for the same leaf.
func (w *wait) isLike(other *wait) bool { return w.on == other.on && w.holder == other.holder }

// recentWaits are the waits of a story as they were computed last.
type recentWaits struct {
	found  []wait
	at     time.Time
	change uint64
}

// areFresh reports whether the waits need not be computed again.
func (w *recentWaits) areFresh(s *story, now time.Time) bool {
	isRecent := len(s.entries) > fewEntries && now.Sub(w.at) < waitsAge
	return !w.at.IsZero() && (w.change == s.change || isRecent)
}

// waits returns the waits of the objects of a story. Their number is small, however many objects there are.
func (b *Book) waits(s *story, now time.Time) []wait {
	if !s.waits.areFresh(s, now) {
		guards := b.guards.those(func(g *guard) bool { return b.isHeldBy(s, g) })
		s.waits = recentWaits{waitsOf(s.entries, guards), now, s.change}
	}
	return s.waits.found
}

// waitsOf groups the waits of entries, and the protected objects that they wait for.
func waitsOf(entries []*entry, guards []guard) []wait {
	type group struct {
		on     leaf
		holder string
		place  place
	}
	groups := map[group]int{}
	var found []wait
	add := func(e *entry, on leaf, holder string) {
		of := group{on, holder, placeOf(e)}
		at, known := groups[of]
		if !known {
			at = len(found)
			groups[of] = at
			found = append(found, wait{on: on, holder: holder, first: e.Ref})
		}
		found[at].count++
		found[at].due = max(found[at].due, e.due)
	}
	for _, g := range guards {
		add(&entry{Ref: g.Ref}, onProtected, "")
	}
	for _, e := range entries {
		if e.state() != stateWaiting {
			continue
		}
		isHeld := e.refusal.lasts()
		if isHeld {
			add(e, onRefused, e.refusal.Refuser())
		}
		for _, f := range e.finalizers {
			if isForeign(f) {
				isHeld = true
				add(e, onFinalizer, f)
			}
		}
		switch {
		case isHeld:
		case e.Kind == "Namespace" || e.phase == ownership.Foreground || e.phase == ownership.Orphaning:
			add(e, onOthers, "")
		case e.Kind == "Pod":
			add(e, onGrace, "")
		default:
			add(e, onRemoval, "")
		}
	}
	return found
}

// isForeign reports whether a finalizer is not the collector's.
func isForeign(finalizer string) bool {
	return finalizer != ownership.FinalizerOrphan && finalizer != ownership.FinalizerForeground
}
