package ownership

import (
	"hash/maphash"
	"iter"
	"slices"
)

// Servers accept objects with ten thousand owner references, and each costs the graph some hundred bytes. A graph that
// NewKeeping has made keeps a few references of such an object: the object is cut. It also keeps a filter of the UIDs
// of all its owners, which has no false negatives. So:
//
//   - A change of an owner suspects the cut objects that may refer to it (mayClaim), beside its claimants.
//   - A change of a cut object suspects the owners in foreground and orphan deletion that it may refer to
//     (mayWait), beside the owners of its kept references.
//   - A decision about a cut object, and one that completes the deletion of an owner that a cut object may refer
//     to, needs the whole list, which the collector reads live (OwnersOf, MayDepend; see verdict.Facts).
//   - The graph needs kept references for one purpose only: a cycle of foreground deletions has to be closed by
//     references that are kept (closing).

// cut is the knowledge about the owners of a cut object.
type cut struct {
	owners filter
	digest uint64 // of the whole list
	more   int    // references that are not kept
	// settled means that all owners were observed and solid when the object was observed, or that the object is
	// parked, and that no event has concerned an object that may be one of its owners since.
	settled bool
	// parked means that the object waits for a kind to be served, whatever its other owners are: none is solid. An
	// absent owner stays absent (R3), so only an event or another list can change that.
	parked bool
}

func (g *Graph) hash(uid UID) uint64 { return maphash.String(g.seed, string(uid)) }

// digest identifies a list of references.
func (g *Graph) digest(owners []Reference) (digest uint64) {
	for i := range owners {
		digest = maphash.Comparable(g.seed, struct {
			before uint64
			owner  Reference
		}{digest, owners[i]})
	}
	return digest
}

// weight is how many ordinary references a reference counts for: names of a kilobyte are
// valid.
func weight(r *Reference) int {
	const ordinary = 128 // bytes
	return 1 + (len(r.Name)+len(r.Kind)+len(r.APIVersion)+len(r.UID))/ordinary
}

// isCut reports whether an object has more owner references than the graph keeps.
func (g *Graph) isCut(owners []Reference) bool {
	if g.most == 0 || len(owners) < 2 {
		return false
	}
	total := 0
	for i := range owners {
		total += weight(&owners[i])
	}
	return total > g.most
}

// cutOf returns what is known about a cut object; nil if it is not cut.
func (g *Graph) cutOf(i entryID) *cut {
	if len(g.cuts) == 0 {
		return nil
	}
	return g.cuts[g.entries.at(i).namespace][i]
}

// setCut records the owners of an observed object if it is cut.
func (g *Graph) setCut(i entryID, o *Object) {
	if !g.isCut(o.Owners) {
		return
	}
	namespace := g.entries.at(i).namespace
	if g.cuts[namespace] == nil {
		g.cuts[namespace] = make(map[entryID]*cut)
	}
	c := &cut{owners: newFilter(len(o.Owners)), digest: g.digest(o.Owners), more: len(o.Owners) - g.countReferences(i)}
	for n := range o.Owners {
		c.owners.add(g.hash(o.Owners[n].UID))
	}
	g.cuts[namespace][i] = c
}

// dropCut forgets that an object is cut.
func (g *Graph) dropCut(i entryID) {
	namespace := g.entries.at(i).namespace
	delete(g.cuts[namespace], i)
	if len(g.cuts[namespace]) == 0 {
		delete(g.cuts, namespace)
	}
}

// noteSolid records whether all owners of a cut object are solid, unless the object is parked: it is settled then. An
// owner that a live read has shown does not suffice: no event would report its removal. It takes some milliseconds for
// ten thousand owners.
func (g *Graph) noteSolid(i entryID, o *Object) {
	c := g.cutOf(i)
	if c == nil {
		return
	}
	c.settled = true
	if c.parked {
		return
	}
	for n := range o.Owners {
		stated := g.statedClaim(&o.Owners[n], g.entries.at(i).namespace)
		presence, phase, _ := g.standingOf(&stated)
		if presence != Present || phase == Foreground || g.entries.at(stated.owner).state != observed {
			c.settled = false
			return
		}
	}
}

// noteFinishing records whether the collector completes the deletion of an entry.
func (g *Graph) noteFinishing(i entryID) {
	e := g.entries.at(i)
	if e.state == observed && (e.phase == Foreground || e.phase == Orphaning) {
		g.finishing[i] = struct{}{}
	} else {
		delete(g.finishing, i)
	}
}

// mayClaim yields the cut objects that may have an entry as an owner. The claims of other namespaces are left out:
// they are never Present, so no event about the owner makes a difference.
func (g *Graph) mayClaim(i entryID) iter.Seq2[entryID, *cut] {
	return func(yield func(entryID, *cut) bool) {
		if len(g.cuts) == 0 {
			return
		}
		e, hash := g.entries.at(i), g.hash(g.uidOf(i))
		for namespace, cuts := range g.cuts {
			if e.state == observed && e.namespace != 0 && e.namespace != namespace {
				continue
			}
			for dependent, c := range cuts {
				if c.owners.mayHave(hash) && !yield(dependent, c) {
					return
				}
			}
		}
	}
}

// mayWait yields the owners in foreground and orphan deletion that a cut object may refer to.
func (g *Graph) mayWait(i entryID) iter.Seq[entryID] {
	return func(yield func(entryID) bool) {
		c := g.cutOf(i)
		if c == nil {
			return
		}
		namespace := g.entries.at(i).namespace
		for owner := range g.finishing {
			at := g.entries.at(owner).namespace
			if (at == 0 || at == namespace) && c.owners.mayHave(g.hash(g.uidOf(owner))) && !yield(owner) {
				return
			}
		}
	}
}

// suspectMayClaim suspects the cut objects that may have an entry as an owner.
func (g *Graph) suspectMayClaim(i entryID) {
	for dependent, c := range g.mayClaim(i) {
		c.settled, c.parked = false, false
		g.suspect(dependent)
	}
}

// concernCut puts all cut objects on the first list (see reconsider.go).
func (g *Graph) concernCut() {
	for _, cuts := range g.cuts {
		for i, c := range cuts {
			c.settled, c.parked = false, false
			g.certain = append(g.certain, i)
		}
	}
}

// suspectCutForeground suspects the cut objects in foreground deletion: the references that would close a cycle may
// not be kept.
func (g *Graph) suspectCutForeground() {
	for _, cuts := range g.cuts {
		for i := range cuts {
			if g.isForeground(i) {
				g.suspect(i)
			}
		}
	}
}

// Recut chooses again which references of a cut object to keep. The object is a live read; Recut ignores another
// state than the observed one. It returns the UIDs to reconsider.
func (g *Graph) Recut(o Object) []UID {
	i := g.find(o.UID)
	c := g.cutOf(i)
	if c == nil || !g.isRecorded(i, o.ResourceVersion) || c.digest != g.digest(o.Owners) {
		return nil
	}
	g.noteSolid(i, &o)
	e := g.entries.at(i)
	kept := g.kept(i, &o)
	if g.hasReferences(i, kept) {
		return nil
	}
	before := e.references
	e.references = g.link(i, e.namespace, kept)
	g.unlink(before)
	c.more = len(o.Owners) - len(kept)
	g.updateCycles(i)
	return g.reconsider()
}

// Park records the decision about a cut object that it waits for a kind to be served. The object is a live read, with
// which the caller has gathered the facts under the same lock; Park ignores another state than the observed one.
// Changes of the object with the same owners then need no decision.
func (g *Graph) Park(o Object) {
	i := g.find(o.UID)
	if c := g.cutOf(i); c != nil && g.isRecorded(i, o.ResourceVersion) && c.digest == g.digest(o.Owners) {
		c.settled, c.parked = true, true
	}
}

// kept returns the references to keep, in the stored order: all, or, of a cut object, the ones that may close a cycle,
// then references to owners in deletion, then the first ones.
func (g *Graph) kept(i entryID, o *Object) []Reference {
	if !g.isCut(o.Owners) {
		return o.Owners
	}
	ranks := g.rankOwners(i, o)
	const partOfMost = 3 // the filter takes the memory of the others
	room := max(1, g.most/partOfMost)
	isKept := make([]bool, len(o.Owners))
	count := 0
	for rank := range byte(lastRank + 1) {
		for n := range o.Owners {
			w := weight(&o.Owners[n])
			if ranks[n] == rank && (w <= room || count == 0) {
				isKept[n] = true
				room -= w
				count++
			}
		}
	}
	kept := make([]Reference, 0, count)
	for n := range o.Owners {
		if isKept[n] {
			kept = append(kept, o.Owners[n])
		}
	}
	return kept
}

// lastRank is the rank of references without urgency.
const lastRank = 2

// rankOwners ranks references by urgency, zero first.
func (g *Graph) rankOwners(i entryID, o *Object) []byte {
	closing := g.closing(i, o)
	ranks := make([]byte, len(o.Owners))
	for n := range o.Owners {
		r := &o.Owners[n]
		owner := g.find(r.UID)
		_, closes := closing[owner]
		_, finishes := g.finishing[owner]
		switch {
		case owner != 0 && closes && r.Blocking():
			ranks[n] = 0
		case owner != 0 && finishes:
			ranks[n] = 1
		default:
			ranks[n] = lastRank
		}
	}
	return ranks
}

// closing returns the objects that an object in foreground deletion waits for, directly or not, and the object itself:
// a blocking reference to one of them closes a cycle. It may return too many, because of cut objects.
func (g *Graph) closing(i entryID, o *Object) map[entryID]struct{} {
	if o.Phase != Foreground {
		return nil
	}
	w := newWalk(i)
	for w.expand(g.mayBlock) {
	}
	return w.seen
}

// mayBlock yields the dependents in foreground deletion that block an object or may do so, as blockers does.
func (g *Graph) mayBlock(i entryID, visit func(entryID) bool) (looked int) {
	looked = g.blockers(i, visit)
	for dependent := range g.mayClaim(i) {
		looked++
		if g.isForeground(dependent) {
			visit(dependent)
		}
	}
	return looked
}

// MayDepend returns the cut objects that may have uid as an owner, without uid itself, sorted. The collector reads them
// live before it completes a deletion of uid.
func (g *Graph) MayDepend(uid UID) []UID {
	i := g.find(uid)
	if i == 0 {
		return nil
	}
	var uids []UID
	for dependent := range g.mayClaim(i) {
		if dependent != i {
			uids = append(uids, g.uidOf(dependent))
		}
	}
	slices.Sort(uids)
	return uids
}

// Answer is the result of a live read of a claim that the graph does not keep.
type Answer struct {
	Presence Presence // Present or Absent
	Phase    Phase    // of the owner, when Present
	Time     int64    // when it came, as SetTime
}

// OwnersOf returns the owner references of an object with the presence of each owner, as Owners does, for the whole
// list of a cut object. The answers count for claims that are Unknown otherwise.
func (g *Graph) OwnersOf(o Object, answers map[Claim]Answer) []Owner {
	i := g.find(o.UID)
	namespace, known := g.namespaces.find(o.Namespace)
	if i == 0 || !known {
		return nil
	}
	owners := make([]Owner, 0, len(o.Owners))
	for n := range o.Owners {
		c := g.statedClaim(&o.Owners[n], namespace)
		stated := Claim{Kind: o.Owners[n].OwnerKind(), Name: c.text, UID: o.Owners[n].UID}
		stated.Namespace = g.namespaces.value(g.answerSpace(c.kind, c.namespace))
		owner := g.owner(i, &c, o.Owners[n], stated)
		if a, ok := answers[stated]; ok && owner.Presence == Unknown && owner.Obstacle == Verifiable {
			owner.Presence, owner.Phase = a.Presence, a.Phase
			owner.Evidence = Evidence{Source: LiveRead, Time: a.Time}
		}
		owners = append(owners, owner)
	}
	return owners
}

// statedClaim returns the claim that a reference states, whether the graph keeps it or not.
func (g *Graph) statedClaim(owner *Reference, namespace spaceID) statement {
	kind, _ := g.kinds.find(owner.OwnerKind()) // a kind that is not known is not served
	return statement{text: owner.Name, owner: g.find(owner.UID), kind: kind, namespace: namespace}
}

// hasReferences reports whether the references that are kept of an object are these.
func (g *Graph) hasReferences(i entryID, owners []Reference) bool {
	n := 0
	for r := range g.referencesOf(i) {
		if n == len(owners) || !g.sameReference(r, &owners[n]) {
			return false
		}
		n++
	}
	return n == len(owners)
}
