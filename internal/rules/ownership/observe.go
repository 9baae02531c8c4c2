package ownership

import "slices"

// Observe records an object as the feed saw it (watch event ADDED or MODIFIED).
// It returns the UIDs to reconsider, sorted, each once.
//
// Observe ignores an observation that is older than the last observation or the DELETED event of
// that UID. An observation that follows the DELETED event and is not older, or cannot be
// compared, is real: the object is back.
func (g *Graph) Observe(o Object) []UID {
	g.observe(&o)
	return g.reconsider()
}

// Refresh records a live read of an object that the graph knows. It never brings back an object
// whose deletion the feed has seen, and ignores older reads.
func (g *Graph) Refresh(o Object) []UID {
	i := g.find(o.UID)
	if i == 0 || g.entries.at(i).state != observed {
		return nil
	}
	g.observe(&o)
	return g.reconsider()
}

// Confirm records a live read of an object, as Refresh does, and reports whether the graph knows
// the state of that object. It does not if the feed has not observed the object yet, nor if the
// feed has already observed its deletion and no dependent claims it. The graph cannot tell the
// two apart, so a read alone never adds an object.
func (g *Graph) Confirm(o Object) (uids []UID, known bool) {
	i := g.find(o.UID)
	switch g.entries.at(i).state {
	case observed:
		return g.Refresh(o), true
	case absent:
		return nil, g.isOlder(i, o.ResourceVersion)
	case presumed, vacant:
	}
	return nil, false
}

// Forget records a DELETED watch event: evidence of absence of that UID (R3).
// An event that is older than the last observation is ignored.
func (g *Graph) Forget(uid UID, resourceVersion string) []UID {
	i := g.find(uid)
	if i == 0 || g.isOlder(i, resourceVersion) {
		return nil
	}
	e := g.entries.at(i)
	if e.state == absent {
		g.setVersion(i, resourceVersion)
		return nil
	}
	g.withdraw(i)
	e.state = absent
	if g.now != 0 {
		g.times[i] = g.now
	}
	g.setVersion(i, resourceVersion)
	g.retire(i)
	return g.reconsider()
}

// Vanish records that a live read of an object returned 404 or another UID, or that a list no
// longer has it: the graph drops it, and claims on it are Unknown again. The evidence of an
// earlier DELETED event stays.
func (g *Graph) Vanish(uid UID) []UID {
	i := g.find(uid)
	if i == 0 {
		return nil
	}
	g.vanish(i)
	return g.reconsider()
}

func (g *Graph) vanish(i entryID) {
	e := g.entries.at(i)
	if e.state == absent {
		return
	}
	g.withdraw(i)
	e.state = presumed
	g.forgetCoordinates(i)
	g.setVersion(i, "")
	g.retire(i)
}

// observe records one observation of the feed or of a live read.
func (g *Graph) observe(o *Object) {
	if o.UID == "" {
		return // no identity, no object
	}
	i := g.entryOf(o.UID)
	if !g.isNews(i, o.ResourceVersion) {
		return
	}
	if g.isSame(i, o) {
		// Only the version has changed. It is a new observation nevertheless: a finalizer or
		// reference that we removed may have been added again.
		g.setVersion(i, o.ResourceVersion)
		g.noteDeletion(i, o.Due)
		g.noteProtection(i, o.Protected)
		g.noteSolid(i, o)
		g.freshen(i)
		g.suspect(i)
		g.suspectOrphaningOwners(i)
		return
	}
	g.change(i, o)
}

// change records an observation that differs from the last one, and collects the objects that
// it concerns.
func (g *Graph) change(i entryID, o *Object) {
	e := g.entries.at(i)
	before := *e
	g.suspectOwners(i) // the previous owners

	kind := g.acquireKind(o.Kind)
	namespace := g.namespaces.acquire(o.Namespace)
	moved := before.state != observed || before.kind != kind || before.namespace != namespace || !g.names.equal(before.name, o.Name)
	relinked := moved || !g.sameReferences(i, o.Owners) || before.phase != o.Phase && g.isCut(o.Owners)
	if relinked {
		// The new references first: the answer for a claim in both lists must stay.
		e.references = g.link(i, namespace, g.kept(i, o))
		g.unlink(before.references)
		g.dropCut(i)
	}
	g.freshen(i)
	g.record(i, o, kind, namespace)
	if relinked {
		g.setCut(i, o)
	}
	g.noteSolid(i, o)
	g.noteFinishing(i)
	g.facts[kind].objects++
	if before.state == observed {
		if before.kind != kind {
			g.unlist(g.entries.at(i), before.kind)
		}
		g.facts[before.kind].objects--
	} else {
		g.objects++
	}
	g.releaseKind(before.kind)
	g.namespaces.release(before.namespace)

	g.suspect(i)
	g.suspectOwners(i) // the new owners (TR-05)
	if moved {
		g.dropMetAnswers(i, before.state)
		g.announce(i, before.state)
	}
	if moved || before.phase != o.Phase {
		g.suspectClaimants(i)
	}
	if before.state == observed && (moved || before.phase != o.Phase) {
		g.suspectMayClaim(i) // not for a new owner: it can only make a cut object's owners more solid
	}
	if moved || relinked || before.phase != o.Phase {
		g.updateCycles(i)
	}
}

// freshen records that a stale entry is observed in this epoch. Its phase can be trusted again,
// so it suspects the objects that waited for that (R4).
func (g *Graph) freshen(i entryID) {
	e := g.entries.at(i)
	if e.marks&stale == 0 {
		return
	}
	e.marks &^= stale
	g.stale--
	g.suspectDependents(i)
	if c := g.cycles[i]; c != nil {
		for _, member := range c.members {
			g.suspect(member)
		}
	}
}

// record overwrites the entry, except its references and the use counts of kind and namespace.
func (g *Graph) record(i entryID, o *Object, kind kindID, namespace spaceID) {
	e := g.entries.at(i)
	if e.state == absent {
		delete(g.times, i)
	}
	finalizers := o.Finalizers
	if len(finalizers) == 0 {
		finalizers = noFinalizers()
	}
	g.countFinished(e, finalizers)
	e.state = observed
	e.phase = o.Phase
	e.kind, e.namespace = kind, namespace
	g.setVersion(i, o.ResourceVersion)
	if !slices.Equal(g.lists[e.finalizers], o.Finalizers) {
		old := e.finalizers
		e.finalizers = g.acquireFinalizers(o.Finalizers)
		g.releaseFinalizers(old)
	}
	g.noteDeletion(i, o.Due)
	g.noteProtection(i, o.Protected)
	if !g.names.equal(e.name, o.Name) {
		g.setName(i, g.acquireName(e, o.Name))
	}
}

// noteProtection records whether an observed entry is protected by its label.
func (g *Graph) noteProtection(i entryID, isProtected bool) { //nolint:revive // flag-parameter: it is what is recorded
	e := g.entries.at(i)
	e.marks &^= protected
	if isProtected {
		e.marks |= protected
	}
}

// isSame reports whether the entry is observed and equal to the observation, apart from the
// version. It allocates nothing.
func (g *Graph) isSame(i entryID, o *Object) bool {
	e := g.entries.at(i)
	return e.state == observed &&
		e.phase == o.Phase &&
		g.names.equal(e.name, o.Name) &&
		g.namespaces.value(e.namespace) == o.Namespace &&
		g.kinds.value(e.kind) == o.Kind &&
		slices.Equal(g.lists[e.finalizers], o.Finalizers) &&
		g.sameReferences(i, o.Owners)
}

func (g *Graph) sameReferences(i entryID, owners []Reference) bool {
	if c := g.cutOf(i); c != nil {
		return c.more+g.countReferences(i) == len(owners) && c.digest == g.digest(owners)
	}
	return g.hasReferences(i, owners)
}

func (g *Graph) sameReference(r *reference, owner *Reference) bool {
	c := g.claims.at(r.claim)
	return r.form.controller() == owner.Controller &&
		r.form.blocking() == owner.BlockOwnerDeletion &&
		g.versions.value(r.form.version()) == owner.APIVersion &&
		g.kinds.value(c.kind).Kind == owner.Kind &&
		g.names.equal(c.name, owner.Name) &&
		g.hasUID(c.owner, owner.UID)
}

// withdraw removes the references and finalizers of an object from the graph, and suspects the
// objects that this concerns. The caller sets the next state of the entry.
func (g *Graph) withdraw(i entryID) {
	e := g.entries.at(i)
	g.dropAnswers(i)
	if e.state == observed {
		g.unlist(e, e.kind)
		g.countFinished(e, nil)
		delete(g.due, i)
		g.suspectOwners(i) // TR-06
		g.unlink(e.references)
		g.dropCut(i)
		delete(g.finishing, i)
		e.references = 0
		g.facts[e.kind].objects--
		g.objects--
		g.releaseFinalizers(e.finalizers)
		e.finalizers, e.phase = 0, Active
	}
	if e.marks&stale != 0 {
		e.marks &^= stale
		g.stale--
	}
	g.suspectDependents(i)
}

// retire drops an entry that is no longer observed, unless it is claimed.
func (g *Graph) retire(i entryID) {
	g.setName(i, 0)
	g.updateCycles(i)
	if g.entries.at(i).claims == 0 {
		g.drop(i)
	}
}
