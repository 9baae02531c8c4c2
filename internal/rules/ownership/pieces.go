package ownership

import (
	"cmp"
	"maps"
	"slices"
)

// This file has the questions about all objects, in pieces, for callers that hold a lock on the graph: they release it
// between two pieces. No other method of a Graph looks at a number of entries that grows with the graph, except for those
// that say so, which are for tests and for graphs of one owner.

// Piece is the number of entries that are looked at before a caller with a lock can release it. On a busy machine, whose
// memory is slow, the answer about one entry may take two microseconds.
const Piece = 1 << 10

// Cursor is a place in a survey of all entries; the zero value is its beginning. It stays valid while the graph changes.
// Such a survey looks once at each object that is there all the time. It may miss an object that comes meanwhile, or look
// at it.
type Cursor struct {
	last  uint32 // the last record that was looked at
	ended bool
}

// AtEnd reports whether the survey is over.
func (c Cursor) AtEnd() bool { return c.ended }

// Survey calls piece until the survey is over, each time within view, which locks the graph.
func Survey(view func(read func(g *Graph)), piece func(g *Graph, from Cursor) (next Cursor)) {
	for from := (Cursor{}); !from.AtEnd(); {
		view(func(g *Graph) { from = piece(g, from) })
	}
}

// All returns the UIDs of all pieces, without duplicates, in no order.
func All(view func(read func(g *Graph)), piece func(g *Graph, from Cursor) ([]UID, Cursor)) (uids []UID) {
	Survey(view, func(g *Graph, from Cursor) Cursor {
		some, next := piece(g, from)
		uids = append(uids, some...)
		return next
	})
	slices.Sort(uids) // an object that has gone and come again may be there twice
	return slices.Compact(uids)
}

// span returns the next Piece records after a place, and the place after them.
func span(from Cursor, used uint32) (first, last uint32, next Cursor) {
	last = used
	if last > from.last && last-from.last > Piece {
		last = from.last + Piece
	}
	return from.last + 1, last, Cursor{last: last, ended: last >= used}
}

// collect returns the UIDs of the next entries that match.
func (g *Graph) collect(from Cursor, match func(i entryID, e *entry) bool) (uids []UID, next Cursor) {
	first, last, next := span(from, uint32(g.entries.used))
	for i := entryID(first); i <= entryID(last); i++ {
		if match(i, g.entries.at(i)) {
			uids = append(uids, g.uidOf(i))
		}
	}
	return uids, next
}

// Unsettled returns the objects among the next Piece entries that may need an action. A collector that has dropped the
// UIDs from earlier calls has to reconsider these objects.
func (g *Graph) Unsettled(from Cursor) (uids []UID, next Cursor) {
	return g.collect(from, func(i entryID, _ *entry) bool { return g.unsettled(i) })
}

// Protected returns the observed objects among the next Piece entries whose label protects them.
func (g *Graph) Protected(from Cursor) (uids []UID, next Cursor) {
	return g.collect(from, func(_ entryID, e *entry) bool { return e.state == observed && e.marks&protected != 0 })
}

// Deleting returns the observed objects among the next Piece entries that are being deleted. If there are few in all, it
// returns all at once.
func (g *Graph) Deleting(from Cursor) (uids []UID, next Cursor) {
	if from.last == 0 && len(g.due) <= Piece {
		for i := range g.due {
			uids = append(uids, g.uidOf(i))
		}
		return uids, Cursor{ended: true}
	}
	return g.collect(from, func(_ entryID, e *entry) bool { return e.state == observed && e.phase != Active })
}

// Observed returns the observed objects among the next Piece entries.
func (g *Graph) Observed(from Cursor) (uids []UID, next Cursor) {
	return g.collect(from, func(_ entryID, e *entry) bool { return e.state == observed })
}

// Related returns the objects among the next Piece entries that have owners or dependents.
func (g *Graph) Related(from Cursor) (uids []UID, next Cursor) { return g.collect(from, g.isRelated) }

// isRelated reports whether an object has owners or dependents.
func (g *Graph) isRelated(i entryID, e *entry) bool {
	return e.state == observed && (e.references != 0 || g.hasDependents(i))
}

// ClaimantsUpTo returns the UIDs of Claimants, or so many of them, in no order and with duplicates, and whether these are
// all.
func (g *Graph) ClaimantsUpTo(uid UID, most int) (uids []UID, all bool) {
	for claimant := range g.Claiming(uid) {
		if len(uids) == most {
			return uids, false
		}
		uids = append(uids, claimant)
	}
	return uids, true
}

// ClaimantsOf returns the dependents of the next Piece references that name one of some owners.
func (g *Graph) ClaimantsOf(from Cursor, owners []UID) (uids []UID, next Cursor) {
	wanted := make(map[entryID]bool, len(owners))
	for _, uid := range owners {
		wanted[g.find(uid)] = true
	}
	delete(wanted, 0)
	first, last, next := span(from, uint32(g.references.used))
	for i := refID(first); i <= refID(last); i++ {
		if r := g.references.at(i); r.dependent != 0 && wanted[g.claims.at(r.claim).owner] {
			uids = append(uids, g.uidOf(r.dependent))
		}
	}
	return uids, next
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

// RelatedAt adds the locations of the objects among the next Piece entries that have owners or dependents.
func (g *Graph) RelatedAt(from Cursor, into map[Location]bool) (next Cursor) {
	first, last, next := span(from, uint32(g.entries.used))
	found := map[locationKey]bool{}
	var before locationKey // most entries have the location of the entry before
	for i := entryID(first); i <= entryID(last); i++ {
		e := g.entries.at(i)
		if here := (locationKey{e.kind, e.namespace}); here != before && !found[here] && g.isRelated(i, e) {
			found[here] = true
			before = here
		}
	}
	for here := range found {
		into[Location{g.kinds.value(here.kind), g.namespaces.value(here.namespace)}] = true
	}
	return next
}

// RelatedIn returns the objects of Related that are in some locations.
func (g *Graph) RelatedIn(from Cursor, places []Location) (uids []UID, next Cursor) {
	wanted := make(map[locationKey]bool, len(places))
	for _, place := range places {
		if key, isKnown := g.locationKey(place); isKnown {
			wanted[key] = true
		}
	}
	return g.collect(from, func(i entryID, e *entry) bool { return wanted[locationKey{e.kind, e.namespace}] && g.isRelated(i, e) })
}

func (g *Graph) locationKey(at Location) (key locationKey, isKnown bool) {
	kind, hasKind := g.kinds.find(at.Kind)
	namespace, hasNamespace := g.namespaces.find(at.Namespace)
	return locationKey{kind, namespace}, hasKind && hasNamespace
}

// Name identifies an object among those that exist at one time; Namespace is empty for a cluster-scoped one.
type Name struct {
	Location

	Name string
}

// Selector selects objects by their coordinates: an object is selected if any part matches.
type Selector struct {
	Namespaces map[string]bool
	Kinds      map[Kind]bool
	Places     map[Location]bool
	Names      map[Name]bool
}

// Selected returns the observed objects among the next Piece entries that are selected.
func (g *Graph) Selected(from Cursor, s *Selector) (uids []UID, next Cursor) {
	m := g.matcher(s)
	return g.collect(from, func(_ entryID, e *entry) bool { return e.state == observed && m.matches(g, e) })
}

// matcher is a Selector with the IDs of the texts. They are valid while the graph does not change.
type matcher struct {
	spaces []bool // by spaceID
	kinds  []kindMatch
	places map[locationKey]bool
	names  map[nameKey]bool
}

// kindMatch is how the objects of a kind may match.
type kindMatch struct{ all, byPlace, byName bool }

type nameKey struct {
	locationKey

	name string
}

func (g *Graph) matcher(s *Selector) *matcher {
	m := &matcher{
		spaces: make([]bool, len(g.namespaces.rows)), kinds: make([]kindMatch, len(g.kinds.rows)),
		places: make(map[locationKey]bool, len(s.Places)), names: make(map[nameKey]bool, len(s.Names)),
	}
	for namespace := range s.Namespaces {
		if id, ok := g.namespaces.find(namespace); ok && id != 0 {
			m.spaces[id] = true
		}
	}
	for kind := range s.Kinds {
		if id, ok := g.kinds.find(kind); ok {
			m.kinds[id].all = true
		}
	}
	for place := range s.Places {
		if key, ok := g.locationKey(place); ok {
			m.kinds[key.kind].byPlace = true
			m.places[key] = true
		}
	}
	for name := range s.Names {
		if key, ok := g.locationKey(name.Location); ok {
			m.kinds[key.kind].byName = true
			m.names[nameKey{key, name.Name}] = true
		}
	}
	return m
}

func (m *matcher) matches(g *Graph, e *entry) bool {
	kind := &m.kinds[e.kind]
	if m.spaces[e.namespace] || kind.all {
		return true
	}
	at := locationKey{e.kind, e.namespace}
	return kind.byPlace && m.places[at] || kind.byName && m.names[nameKey{at, g.names.text(e.name)}]
}

// Parked adds, for each kind, the references among the next Piece ones that wait for the kind to be served (R7). It is
// over at once if each claimed kind is served.
func (g *Graph) Parked(from Cursor, into map[Kind]int) (next Cursor) {
	if !slices.ContainsFunc(g.facts, func(f kindFacts) bool { return f.scope == ScopeUnknown && f.claims > 0 }) {
		return Cursor{ended: true}
	}
	first, last, next := span(from, uint32(g.references.used))
	for i := refID(first); i <= refID(last); i++ {
		r := g.references.at(i)
		if r.dependent == 0 {
			continue
		}
		c := g.claims.at(r.claim)
		if g.facts[c.kind].scope != ScopeUnknown {
			continue
		}
		if _, _, obstacle := g.standing(c); obstacle == Unmapped {
			into[g.kinds.value(c.kind)]++
		}
	}
	return next
}

// Deletions are the counts of pending and past deletions. The zero value has none.
type Deletions struct{ found map[deletionKey]Deletion }

// Add adds the deletions of the objects among the next Piece entries; all at once if there are few.
func (d *Deletions) Add(g *Graph, from Cursor) (next Cursor) {
	if from.last == 0 {
		d.found = make(map[deletionKey]Deletion, len(g.finished))
		for key, count := range g.finished {
			d.found[key] = Deletion{Kind: key.kind, Finalizer: key.finalizer, Gone: count}
		}
		if len(g.due) <= Piece {
			for i, due := range g.due {
				d.add(g, g.entries.at(i), due)
			}
			return Cursor{ended: true}
		}
	}
	first, last, next := span(from, uint32(g.entries.used))
	for i := entryID(first); i <= entryID(last); i++ {
		if e := g.entries.at(i); e.state == observed && e.phase != Active {
			d.add(g, e, g.due[i])
		}
	}
	return next
}

func (d *Deletions) add(g *Graph, e *entry, due int64) {
	for _, f := range g.finalizersOf(e.finalizers) {
		key := g.deletionOf(g.kinds.value(e.kind), f)
		one, isKnown := d.found[key]
		if !isKnown {
			one.Kind, one.Finalizer = key.kind, key.finalizer
		}
		one.Objects++
		one.Oldest = earliest(one.Oldest, due)
		d.found[key] = one
	}
}

// Sorted returns the counts, sorted by kind and finalizer.
func (d *Deletions) Sorted() []Deletion {
	all := slices.AppendSeq(make([]Deletion, 0, len(d.found)), maps.Values(d.found))
	slices.SortFunc(all, func(a, b Deletion) int {
		return cmp.Or(cmp.Compare(a.Kind.Group, b.Kind.Group), cmp.Compare(a.Kind.Kind, b.Kind.Kind), cmp.Compare(a.Finalizer, b.Finalizer))
	})
	return all
}
