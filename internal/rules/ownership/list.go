package ownership

// A list of the objects of a kind may come in parts, so that nobody has to hold all of it. Lists of a kind are
// numbered: an entry has the number of the last list that had it. At the end of a list, the entries with another
// number are missing. A list that fails midway needs no cleaning up: the next one has another number.

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

// Load is Listed for a caller who has not begun to decide, and who will ask UnsettledFrom before: it does not find out which
// objects to reconsider.
func (g *Graph) Load(objects []Object) {
	for n := range objects {
		g.observe(&objects[n])
		g.enlist(&objects[n])
		g.certain, g.candidates = emptied(g.certain), emptied(g.candidates)
	}
}

// EndList records that the list that has begun last is complete. It drops the objects of the kind that the list lacks, as
// Vanish does. Owners of that kind that live reads found but the list lacks are Unknown again: they may have been deleted
// before the list was made, without an event.
func (g *Graph) EndList(k Kind) []UID {
	if kind, ok := g.kinds.find(k); ok {
		if g.facts[kind].listed != g.facts[kind].objects {
			g.piece(Cursor{}, int(g.entries.used), func(i entryID, e *entry) {
				if g.isMissing(kind, e) {
					g.vanish(i)
				}
			})
		}
		g.doubtPresence(kind)
	}
	return g.reconsider()
}

// DropMissing does a part of EndList, for a caller who does not want to wait for all of it: it looks at the next entries, at
// most so many.
func (g *Graph) DropMissing(k Kind, from Cursor, most int) (uids []UID, next Cursor) {
	kind, ok := g.kinds.find(k)
	if !ok || g.facts[kind].listed == g.facts[kind].objects {
		return nil, Cursor{ended: true}
	}
	next = g.piece(from, most, func(i entryID, e *entry) {
		if g.isMissing(kind, e) {
			g.vanish(i)
		}
	})
	return g.reconsider(), next
}

// isMissing reports whether the list of a kind lacks an entry that is observed.
func (g *Graph) isMissing(kind kindID, e *entry) bool {
	return e.state == observed && e.kind == kind && e.list != g.facts[kind].list
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
