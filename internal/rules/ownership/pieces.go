package ownership

// This file has surveys in pieces, for callers that hold a lock on the graph: they release it between two pieces.

// Cursor is a place in a survey of all entries; the zero value is its beginning. It stays valid while the graph changes.
// Such a survey looks once at each entry that is there all the time. It may miss an object that comes meanwhile, or look
// at it: it can be in the place of one that has gone.
type Cursor struct {
	last  entryID // the last entry that was looked at
	ended bool
}

// AtEnd reports whether the survey is over.
func (c Cursor) AtEnd() bool { return c.ended }

// piece calls look for the next entries in use, at most so many, and returns the place after them.
func (g *Graph) piece(from Cursor, most int, look func(i entryID, e *entry)) (next Cursor) {
	last := g.entries.used
	if most < int(last)-int(from.last) {
		last = from.last + entryID(most)
	}
	for i := from.last + 1; i <= last; i++ {
		look(i, g.entries.at(i))
	}
	return Cursor{last: last, ended: last >= g.entries.used}
}

// UnsettledFrom returns the objects that may need an action among the next entries, at most so many, and the place after
// them. A collector that has dropped the UIDs from earlier calls has to reconsider these objects.
func (g *Graph) UnsettledFrom(from Cursor, most int) (uids []UID, next Cursor) {
	next = g.piece(from, most, func(i entryID, _ *entry) {
		if g.unsettled(i) {
			uids = append(uids, g.uidOf(i))
		}
	})
	return uids, next
}
