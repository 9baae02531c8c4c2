package ownership

// A list of the objects of a kind may come in parts, so that it is never in memory as a whole. The lists of a kind are
// numbered, and an entry has the number of the last list with this entry. At the end of a list, all entries with other
// numbers are missing. A list that fails midway leaves nothing to clean up, because the next list has a new number.

// listNumber numbers the lists of a kind. Zero means none.
type listNumber uint8

// lastList is the highest number.
const lastList = ^listNumber(0)

// StartList records that a list of the objects of a kind begins. The parts of an earlier list that has not ended count
// no more.
func (g *Graph) StartList(k Kind) {
	kind, ok := g.kinds.find(k)
	if !ok {
		return // so it has no objects that could be missing
	}
	facts := &g.facts[kind]
	if facts.list == lastList {
		for _, e := range g.entries.all() {
			if e.state == observed && e.kind == kind {
				e.list = 0
			}
		}
		facts.list = 0
	}
	facts.list++
	facts.listed = 0
}

// Listed records a part of a list: it observes the objects.
func (g *Graph) Listed(objects []Object) []UID {
	for n := range objects {
		g.observe(&objects[n])
		g.enlist(&objects[n])
	}
	return g.reconsider()
}

// Load is Listed for a caller who has not begun to decide, and who will ask Unsettled before: it does not find out which
// objects to reconsider.
func (g *Graph) Load(objects []Object) {
	for n := range objects {
		g.observe(&objects[n])
		g.enlist(&objects[n])
		g.certain, g.candidates = emptied(g.certain), emptied(g.candidates)
	}
	g.rest = nil
}

// EndList records that the list that has begun last is complete. It drops the objects of the kind that the list lacks, as
// Vanish does. Owners of that kind that live reads found but the list lacks are Unknown again: they may have been deleted
// before the list was made, without an event.
func (g *Graph) EndList(k Kind) []UID {
	if kind, ok := g.kinds.find(k); ok {
		g.dropMissing(kind, 1, g.entries.used)
		g.doubtPresence(kind)
	}
	return g.reconsider()
}

// DropMissing does what EndList does for the next Piece entries.
func (g *Graph) DropMissing(k Kind, from Cursor) (uids []UID, next Cursor) {
	kind, ok := g.kinds.find(k)
	if !ok || g.facts[kind].listed == g.facts[kind].objects {
		return nil, Cursor{ended: true}
	}
	first, last, next := span(from, uint32(g.entries.used))
	g.dropMissing(kind, entryID(first), entryID(last))
	return g.reconsider(), next
}

// dropMissing drops the missing objects of a kind among the entries from first to last. It stops as soon as no object is
// missing.
func (g *Graph) dropMissing(kind kindID, first, last entryID) {
	for i := first; i <= last && g.facts[kind].listed != g.facts[kind].objects; i++ {
		if e := g.entries.at(i); e.state == observed && e.kind == kind && e.list != g.facts[kind].list {
			g.vanish(i)
		}
	}
}

// Replace records a list as a whole. An empty list is right for a kind that is no longer served.
func (g *Graph) Replace(k Kind, objects []Object) []UID {
	g.StartList(k)
	for n := range objects {
		g.observe(&objects[n])
		g.enlist(&objects[n])
	}
	return g.EndList(k)
}

// enlist records that the list of its kind that is under way has an object.
func (g *Graph) enlist(o *Object) {
	e := g.entries.at(g.find(o.UID))
	facts := &g.facts[e.kind]
	if e.state == observed && e.list != facts.list {
		e.list = facts.list
		facts.listed++
	}
}

// unlist records that an entry is no longer an observed object of a kind.
func (g *Graph) unlist(e *entry, kind kindID) {
	if facts := &g.facts[kind]; e.list != 0 && e.list == facts.list {
		facts.listed--
	}
	e.list = 0
}
