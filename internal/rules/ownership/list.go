package ownership

import "slices"

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

// Load is Listed for a caller who has not begun to decide, and who will ask Unsettled before: it does not find out which
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
		g.dropMissing(kind, 1, g.entries.used)
		g.doubtPresence(kind)
	}
	return g.reconsider()
}

// DropMissing does a part of EndList, for a caller who does not want to wait for all of it: it looks at so many entries.
// The next call continues from next; zero means that the list lacks no other object.
func (g *Graph) DropMissing(k Kind, from uint32, most int) (uids []UID, next uint32) {
	kind, ok := g.kinds.find(k)
	first := max(entryID(from), 1)
	if !ok || g.facts[kind].listed == g.facts[kind].objects || first > g.entries.used {
		return nil, 0
	}
	last := min(g.entries.used, first+entryID(most)-1)
	g.dropMissing(kind, first, last)
	return g.reconsider(), uint32(last) + 1
}

// dropMissing drops those of the entries from first to last that the list of a kind lacks. It does not look at the entries
// if there are none.
func (g *Graph) dropMissing(kind kindID, first, last entryID) {
	facts := &g.facts[kind]
	for i := first; i <= last && facts.listed != facts.objects; i++ {
		if e := g.entries.at(i); e.state == observed && e.kind == kind && e.list != facts.list {
			g.vanish(i)
			facts = &g.facts[kind]
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

// Unsettled returns objects that may need an action: all for which a call could have returned a UID since the graph was
// empty. It looks at so many entries; the next call continues from next, and zero means that there are no more.
func (g *Graph) Unsettled(from uint32, most int) (uids []UID, next uint32) {
	first := max(entryID(from), 1)
	last := min(g.entries.used, first+entryID(most)-1)
	for i := first; i <= last; i++ {
		if g.unsettled(i) {
			uids = append(uids, g.uidOf(i))
		}
	}
	slices.Sort(uids)
	if last >= g.entries.used {
		return uids, 0
	}
	return uids, uint32(last) + 1
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
