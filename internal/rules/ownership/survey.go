package ownership

// This file has the questions about all objects of a graph that counters answer, and All; pieces.go has the others, and
// read.go those about one object.

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
}

// ByKind returns the counts of each kind that is served or has observed objects, sorted by name.
func (g *Graph) ByKind() []KindStats {
	var stats []KindStats
	for id, f := range g.facts {
		s := KindStats{Kind: g.kinds.value(kindID(id)), Scope: f.scope, Objects: int(f.objects)}
		if s.Scope != ScopeUnknown || s.Objects > 0 {
			stats = append(stats, s)
		}
	}
	slices.SortFunc(stats, func(a, b KindStats) int { return strings.Compare(a.Kind.String(), b.Kind.String()) })
	return stats
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
