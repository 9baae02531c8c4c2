package story

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

const (
	// fewEntries is the largest story whose waits are computed anew at each change; for larger ones they are computed
	// once per waitsAge. The collector is blocked meanwhile.
	fewEntries = 500
	waitsAge   = time.Second
)

// leaf is why a marked object waits. Causes come before their effects.
type leaf uint8

const (
	onProtected leaf = iota // of an object that is not deleted because it is protected
	onFinalizer             // of another controller
	onGrace                 // a pod, to stop
	onRemoval               // no known reason
	onOthers                // dependents, or contents
)

// wait groups the marked objects of a kind in a namespace that wait for the same leaf, or the protected objects that
// they wait for.
type wait struct {
	on        leaf
	finalizer string

	first Ref
	count int
	due   int64 // the latest, in seconds since 1970
}

// isLike reports whether both wait for the same leaf.
func (w *wait) isLike(other *wait) bool { return w.on == other.on && w.finalizer == other.finalizer }

// waits returns the waits of the marked objects of a story. Their number is small, however many objects there are.
func (b *Book) waits(s *story, now time.Time) []wait {
	isFresh := s.waitsChange == s.change || len(s.entries) > fewEntries && now.Sub(s.waitsAt) < waitsAge
	if isFresh && !s.waitsAt.IsZero() {
		return s.waitsFound
	}
	type key struct {
		on              leaf
		finalizer       string
		kind, namespace string
		home            ownership.UID
	}
	places := map[key]int{}
	var found []wait
	add := func(e *entry, on leaf, finalizer string) {
		k := key{on, finalizer, e.Kind, e.Namespace, e.NamespaceUID}
		at, known := places[k]
		if !known {
			at = len(found)
			places[k] = at
			found = append(found, wait{on: on, finalizer: finalizer, first: e.Ref})
		}
		found[at].count++
		found[at].due = max(found[at].due, e.due)
	}
	for _, g := range b.guardsOf(s) {
		add(&entry{Ref: g}, onProtected, "")
	}
	for _, e := range s.entries {
		if !e.isWaiting() {
			continue
		}
		isHeld := false
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
	s.waitsFound, s.waitsAt, s.waitsChange = found, now, s.change
	return found
}

// isForeign reports whether a finalizer is not the collector's.
func isForeign(finalizer string) bool {
	return finalizer != ownership.FinalizerOrphan && finalizer != ownership.FinalizerForeground
}

// waitsFor describes the waits in words, as far as a reader may see them.
func waitsFor(all []wait, sees Sees) string {
	var seen []wait
	for _, w := range all {
		if sees != nil && !sees(w.first) {
			continue
		}
		at := slices.IndexFunc(seen, func(other wait) bool { return other.isLike(&w) })
		if at < 0 {
			seen = append(seen, w)
			continue
		}
		seen[at].count += w.count
		seen[at].due = max(seen[at].due, w.due)
	}
	slices.SortStableFunc(seen, func(a, b wait) int { return cmp.Or(cmp.Compare(a.on, b.on), cmp.Compare(b.count, a.count)) })
	var says []string
	for _, w := range seen {
		if w.on != onOthers || len(seen) == 1 { // these wait for the others
			says = append(says, w.String())
		}
	}
	return strings.Join(says, "; ")
}

// String describes the object that is waited for.
func (w *wait) String() string {
	some := w.first.String()
	if w.count > 1 {
		some += fmt.Sprintf(" and %d more", w.count-1)
	}
	switch w.on {
	case onProtected:
		return some + ", which " + map[bool]string{true: "are", false: "is"}[w.count > 1] + " protected"
	case onFinalizer:
		return "the finalizer " + w.finalizer + " of " + some
	case onGrace:
		return fmt.Sprintf("%s to stop, until %s", some, time.Unix(w.due, 0).UTC().Format("15:04:05 UTC"))
	case onOthers:
		return "the dependents and contents of " + some
	case onRemoval:
	}
	return some + " to be removed"
}
