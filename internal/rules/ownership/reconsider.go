package ownership

import "slices"

// While a call changes the graph, it collects the objects that the change may concern in two
// lists. Objects on the first list are always returned, because they wait for the change: they
// were parked, or a live read was made for them. Objects on the second list are returned only if
// they may need an action at the end of the call.

// reconsider empties both lists and returns the UIDs, sorted and without duplicates.
func (g *Graph) reconsider() []UID {
	if len(g.certain) == 0 && len(g.candidates) == 0 {
		return nil
	}
	slices.Sort(g.candidates)
	for _, i := range slices.Compact(g.candidates) {
		if g.unsettled(i) {
			g.certain = append(g.certain, i)
		}
	}
	slices.Sort(g.certain)
	var uids []UID
	for _, i := range slices.Compact(g.certain) {
		if g.entries.at(i).state == observed {
			uids = append(uids, g.uidOf(i))
		}
	}
	g.certain, g.candidates = emptied(g.certain), emptied(g.candidates)
	slices.Sort(uids)
	return uids
}

// emptied returns the empty list for the next call; it frees a list that has grown too large.
func emptied(list []entryID) []entryID {
	const keep = 1 << 12
	if cap(list) > keep {
		return nil
	}
	return list[:0]
}

// unsettled reports whether an object may need an action: it is in a deletion that the collector
// must complete, or not all its owners are solid, and it is not parked.
func (g *Graph) unsettled(i entryID) bool {
	e := g.entries.at(i)
	if e.state != observed {
		return false
	}
	switch e.phase {
	case Foreground, Orphaning:
		return true
	case Terminating:
		return false // R8
	case Active:
	}
	c := g.cutOf(i)
	if c != nil && c.parked {
		return false
	}
	for r := range g.referencesOf(i) {
		presence, phase, _ := g.standing(g.claims.at(r.claim))
		if presence != Present || phase == Foreground {
			return true
		}
	}
	return c != nil && !c.settled
}

// suspect puts an object on the second list.
func (g *Graph) suspect(i entryID) { g.candidates = append(g.candidates, i) }

// suspectOwners suspects the owners of an object: an owner in foreground deletion may have lost
// its last blocking dependent (R14), one in orphan deletion may have gained a dependent (R13), and
// one that will be deleted may have become a leaf (R10).
func (g *Graph) suspectOwners(i entryID) {
	for r := range g.referencesOf(i) {
		g.suspect(g.claims.at(r.claim).owner)
	}
	for owner := range g.mayWait(i) {
		g.suspect(owner)
	}
}

// suspectOrphaningOwners suspects the owners in orphan deletion that an object still refers
// to, or refers to again (R13).
func (g *Graph) suspectOrphaningOwners(i entryID) {
	for r := range g.referencesOf(i) {
		owner := g.claims.at(r.claim).owner
		if g.entries.at(owner).phase == Orphaning {
			g.suspect(owner)
		}
	}
	for owner := range g.mayWait(i) {
		g.suspect(owner)
	}
}

// suspectDependents suspects all objects that claim an entry, or may do so.
func (g *Graph) suspectDependents(i entryID) {
	g.suspectClaimants(i)
	g.suspectMayClaim(i)
}

// suspectClaimants suspects all objects that claim an entry with a reference that is kept.
func (g *Graph) suspectClaimants(i entryID) {
	for id := range g.claimsOn(i) {
		g.addClaimants(id, ifUnsettled)
	}
}

// concernDependents puts all objects that claim an entry on the first list.
func (g *Graph) concernDependents(i entryID) {
	for id := range g.claimsOn(i) {
		g.concernClaimants(id)
	}
	for dependent, c := range g.mayClaim(i) {
		c.settled = false
		g.certain = append(g.certain, dependent)
	}
}

// concernClaimants puts all objects that make a claim on the first list.
func (g *Graph) concernClaimants(id claimID) { g.addClaimants(id, always) }

// announce puts the objects that the first observation of an owner concerns on the first list:
// they were parked on its kind, or had evidence that it was gone.
func (g *Graph) announce(i entryID, before state) {
	if before == observed {
		return
	}
	for id, c := range g.claimsOn(i) {
		if before == absent || g.facts[c.kind].scope == ScopeUnknown {
			g.concernClaimants(id)
		}
	}
}
