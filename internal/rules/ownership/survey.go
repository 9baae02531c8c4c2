package ownership

// This file has the questions about all objects of a graph; read.go has those about one object.

import (
	"iter"
	"slices"
	"strings"
)

// Scope returns the scope of a kind as set by SetScope.
func (g *Graph) Scope(k Kind) Scope {
	id, ok := g.kinds.find(k)
	if !ok {
		return ScopeUnknown
	}
	return g.facts[id].scope
}

// Count returns the number of observed objects of a kind.
func (g *Graph) Count(k Kind) int {
	id, ok := g.kinds.find(k)
	if !ok {
		return 0
	}
	return int(g.facts[id].objects)
}

// KindStats are the counts of one kind.
type KindStats struct {
	Kind    Kind
	Scope   Scope
	Objects int // observed
	Parked  int // references to owners of this kind that wait for it to be served (R7)
}

// ByKind returns the counts of each kind, sorted by name. It iterates over all claims if a
// claimed kind is not served, else it is cheap.
func (g *Graph) ByKind() []KindStats {
	parked := g.parked()
	var stats []KindStats
	for id, f := range g.facts {
		s := KindStats{Kind: g.kinds.value(kindID(id)), Scope: f.scope, Objects: int(f.objects), Parked: parked[kindID(id)]}
		if s.Scope != ScopeUnknown || s.Objects > 0 || s.Parked > 0 {
			stats = append(stats, s)
		}
	}
	slices.SortFunc(stats, func(a, b KindStats) int { return strings.Compare(a.Kind.String(), b.Kind.String()) })
	return stats
}

// parked counts the references that wait for a kind to be served.
func (g *Graph) parked() map[kindID]int {
	parked := make(map[kindID]int)
	if !slices.ContainsFunc(g.facts, func(f kindFacts) bool { return f.scope == ScopeUnknown && f.claims > 0 }) {
		return parked
	}
	for _, c := range g.claims.all() {
		if c.first == 0 {
			continue
		}
		if _, _, obstacle := g.standing(c); obstacle == Unmapped {
			for range g.claimants(c) {
				parked[c.kind]++
			}
		}
	}
	return parked
}

// Len returns the number of observed objects.
func (g *Graph) Len() int { return g.objects }

// Stats is the size of the graph.
type Stats struct {
	Objects    int // observed
	Presumed   int // UIDs that are only claimed, with or without evidence of absence
	References int
	Claims     int
	Answers    int // of live reads, kept
	InCycles   int // objects that are part of a cycle
}

// Stats returns the size of the graph, in constant time.
func (g *Graph) Stats() Stats {
	return Stats{
		Objects:    g.objects,
		Presumed:   g.entries.len() - g.objects,
		References: g.references.len(),
		Claims:     g.claims.len(),
		Answers:    len(g.answers),
		InCycles:   len(g.cycles),
	}
}

// Related returns the UIDs of the objects that have owners or dependents.
func (g *Graph) Related() []UID {
	var uids []UID
	for i, e := range g.entries.all() {
		if g.isRelated(i, e) {
			uids = append(uids, g.uidOf(i))
		}
	}
	return uids
}

// isRelated reports whether an object has owners or dependents.
func (g *Graph) isRelated(i entryID, e *entry) bool {
	return e.state == observed && (e.references != 0 || g.hasDependents(i))
}

// Location is a kind and a namespace, which is empty for cluster-scoped objects.
type Location struct {
	Kind      Kind
	Namespace string
}

// locationKey is a Location with the IDs of its parts, as in entries.
type locationKey struct {
	kind      kindID
	namespace spaceID
}

// RelatedAt returns the locations of the objects that have owners or dependents, in no order.
func (g *Graph) RelatedAt() []Location {
	found := map[locationKey]bool{}
	var last locationKey // most entries have the location of the entry before
	for i, e := range g.entries.all() {
		if here := (locationKey{e.kind, e.namespace}); here != last && !found[here] && g.isRelated(i, e) {
			found[here] = true
			last = here
		}
	}
	all := make([]Location, 0, len(found))
	for here := range found {
		all = append(all, Location{g.kinds.value(here.kind), g.namespaces.value(here.namespace)})
	}
	return all
}

// RelatedIn returns the UIDs of the objects in some locations that have owners or dependents.
func (g *Graph) RelatedIn(places []Location) []UID {
	wanted := make(map[locationKey]bool, len(places))
	for _, place := range places {
		kind, hasKind := g.kinds.find(place.Kind)
		namespace, hasNamespace := g.namespaces.find(place.Namespace)
		if hasKind && hasNamespace {
			wanted[locationKey{kind, namespace}] = true
		}
	}
	var uids []UID
	for i, e := range g.entries.all() {
		if wanted[locationKey{e.kind, e.namespace}] && g.isRelated(i, e) {
			uids = append(uids, g.uidOf(i))
		}
	}
	return uids
}

// All returns every observed object, sorted by UID. It is for tests and diagnostics. The graph
// must not be changed meanwhile.
func (g *Graph) All() iter.Seq[Object] {
	return func(yield func(Object) bool) {
		uids := make([]UID, 0, g.objects)
		for i, e := range g.entries.all() {
			if e.state == observed {
				uids = append(uids, g.uidOf(i))
			}
		}
		slices.Sort(uids)
		for _, uid := range uids {
			if !yield(g.object(g.find(uid))) {
				return
			}
		}
	}
}

// Protected returns the UIDs of the observed objects whose label protects them.
func (g *Graph) Protected() []UID {
	var uids []UID
	for i, e := range g.entries.all() {
		if e.state == observed && e.marks&protected != 0 {
			uids = append(uids, g.uidOf(i))
		}
	}
	return uids
}

// Carries reports whether any observed object has a finalizer. It looks at each distinct list of finalizers
// once, so its cost does not depend on the number of objects.
func (g *Graph) Carries(finalizer string) bool {
	for _, list := range g.lists {
		if slices.Contains(list, finalizer) {
			return true
		}
	}
	return false
}
