package ownership

// answer is the result of a live read of a claim.
type answer struct {
	presence Presence // Present or Absent
	phase    Phase    // of the owner, when Present
	at       int64    // when it came (SetTime)
}

// standing returns the presence of a claim (R2), the phase of an owner that is Present, and the
// obstacle to verifying a claim that is Unknown.
func (g *Graph) standing(c *claim) (Presence, Phase, Obstacle) {
	stated := c.statement()
	return g.standingOf(&stated)
}

// standingOf returns the same of a claim that may not be kept.
func (g *Graph) standingOf(c *statement) (Presence, Phase, Obstacle) {
	owner := g.entries.at(c.owner)
	if g.meets(owner, c) {
		return Present, owner.phase, Verifiable
	}
	scope := g.facts[c.kind].scope
	if c.namespace == 0 && (scope == Namespaced || scope == ScopeUnknown && owner.namespace != 0) {
		return Unknown, Active, OutOfScope // R5, before any absence: no object is deleted for such a claim
	}
	if owner.state == absent && (c.namespace != 0 || scope == Cluster || owner.kind == c.kind) {
		return Absent, Active, Verifiable // R3, whatever the coordinates
	}
	if scope == ScopeUnknown {
		return Unknown, Active, Unmapped // R7
	}
	if a, ok := g.answerOf(c); ok {
		if owner.state == observed {
			a.phase = owner.phase // the same object, read under another kind
		}
		return a.presence, a.phase, Verifiable
	}
	return Unknown, Active, Verifiable
}

// evidence returns the basis of the standing of a claim; p is its presence.
func (g *Graph) evidence(c *statement, p Presence) Evidence {
	owner := g.entries.at(c.owner)
	switch {
	case p == Unknown:
		return Evidence{}
	case g.meets(owner, c):
		return Evidence{Source: Observation, Revision: owner.version.number()}
	case owner.state == absent:
		return Evidence{Source: DeletedEvent, Revision: owner.version.number(), Time: g.times[c.owner]}
	default:
		a, _ := g.answerOf(c)
		return Evidence{Source: LiveRead, Time: a.at}
	}
}

// meets reports whether an owner was observed at the claim's coordinates.
func (g *Graph) meets(owner *entry, c *statement) bool {
	if owner.state != observed || owner.kind != c.kind || owner.namespace != 0 && owner.namespace != c.namespace {
		return false
	}
	if c.name != 0 {
		return g.names.same(owner.name, c.name)
	}
	return g.names.equal(owner.name, c.text)
}

// isMet reports whether the owner of a claim was observed at the claim's coordinates.
func (g *Graph) isMet(c *claim) bool {
	stated := c.statement()
	return g.meets(g.entries.at(c.owner), &stated)
}

// isPresent reports whether the claim makes dependents of its claimants.
func (g *Graph) isPresent(c *claim) bool {
	presence, _, _ := g.standing(c)
	return presence == Present
}

// answerSpace returns the namespace that a live read of a claim asks for: a cluster-scoped owner has a single place for
// the dependents of all namespaces.
func (g *Graph) answerSpace(kind kindID, namespace spaceID) spaceID {
	if g.facts[kind].scope == Cluster {
		return 0
	}
	return namespace
}

// answerKey returns the coordinates that a live read of the claim asks for.
func (g *Graph) answerKey(c *claim) claimKey {
	key := g.keyOf(c)
	key.namespace = g.answerSpace(c.kind, c.namespace)
	return key
}

// answerOf returns the answer of a live read of a claim.
func (g *Graph) answerOf(c *statement) (answer, bool) {
	if len(g.answers) == 0 {
		return answer{}, false
	}
	key := claimKey{c.owner, c.kind, g.answerSpace(c.kind, c.namespace), c.text}
	if c.name != 0 {
		key.name = g.names.text(c.name)
	}
	a, ok := g.answers[key]
	return a, ok
}

// SetScope records that a kind is served, and its scope; ScopeUnknown means that it is no longer
// served. It returns the objects that were parked on that kind, or must be now. Claims that live
// reads of the kind have answered are Unknown again. Its observed objects stay until the feed
// observes them again or reports them gone.
func (g *Graph) SetScope(k Kind, s Scope) []UID {
	id, ok := g.kinds.find(k)
	if ok && g.facts[id].scope == s || !ok && s == ScopeUnknown {
		return nil
	}
	id = g.acquireKind(k)
	if g.facts[id].scope != ScopeUnknown {
		g.releaseKind(id) // there is one use for a known scope, not two
	}
	g.facts[id].scope = s
	for key := range g.answers {
		if key.kind == id {
			delete(g.answers, key)
		}
	}
	if g.facts[id].claims > 0 {
		g.concernClaims(id)
	}
	g.concernCut() // their owners' kinds are not known
	if s == ScopeUnknown {
		g.releaseKind(id)
	}
	return g.reconsider()
}

// concernClaims puts on the first list (see reconsider.go) the claimants of a kind whose owner is
// not observed at the claimed coordinates.
func (g *Graph) concernClaims(kind kindID) {
	for id, c := range g.claims.all() {
		if c.first == 0 || c.kind != kind || g.isMet(c) {
			continue
		}
		g.concernClaimants(id)
		g.suspect(c.owner)
		g.updateCycles(c.owner)
	}
}

// Resolve records the answer to a live read of a claim. The phase counts only if p is Present;
// Unknown revokes an earlier answer. It returns the dependents that make the claim.
//
// Resolve ignores an answer about coordinates at which the owner is observed: there the feed
// counts. It also ignores an answer about a kind that is not served, or that is served in another
// scope: the 404 may be about the path, not about the object.
func (g *Graph) Resolve(c Claim, p Presence, phase Phase) []UID {
	owner := g.find(c.UID)
	kind, ok := g.kinds.find(c.Kind)
	if owner == 0 || !ok {
		return nil
	}
	scope := g.facts[kind].scope
	isInScope := scope == Cluster && c.Namespace == "" || scope == Namespaced && c.Namespace != ""
	var open *claim // matches the answer, and the owner is not observed there
	for id, stated := range g.claimsOn(owner) {
		if stated.kind != kind || !g.names.equal(stated.name, c.Name) ||
			scope != Cluster && g.namespaces.value(stated.namespace) != c.Namespace {
			continue
		}
		g.concernClaimants(id)
		if !g.isMet(stated) {
			open = stated
		}
	}
	if isInScope && open != nil {
		g.answer(open, answer{presence: p, phase: phase, at: g.now})
		g.suspect(owner) // its claimants may have become its dependents
		g.updateCycles(owner)
	}
	return g.reconsider()
}

// answer records the result of a live read of a claim.
func (g *Graph) answer(c *claim, a answer) {
	owner := g.entries.at(c.owner)
	switch {
	case a.presence == Unknown:
		delete(g.answers, g.answerKey(c))
	case owner.state == absent && a.presence == Present:
		// There is a DELETED event, and a live read found the object: either the read was made
		// before, or the server went back in time (R4). Neither counts; the next read decides.
		g.doubtAbsence(c.owner)
	case owner.state == absent:
		// The event is evidence for all coordinates already.
	default:
		g.answers[g.answerKey(c)] = a
	}
}

// doubtAbsence makes the claims on an absent entry Unknown again.
func (g *Graph) doubtAbsence(i entryID) {
	g.entries.at(i).state = presumed
	delete(g.times, i)
	g.forgetCoordinates(i)
	g.setVersion(i, "")
	g.concernDependents(i)
}

// doubtPresence makes claims on objects of a kind Unknown again if a live read found the object but
// the feed, which has just listed the kind, did not.
func (g *Graph) doubtPresence(kind kindID) {
	for key, a := range g.answers {
		if key.kind == kind && a.presence == Present && g.entries.at(key.owner).state != observed {
			delete(g.answers, key)
			g.suspectDependents(key.owner)
		}
	}
}

// NewEpoch makes all absence Unknown again (R4) and returns all objects that this concerns. It
// drops the answers of live reads, too. Earlier versions can no longer be compared: a restored
// server may use the same numbers again. All observed entries become stale.
func (g *Graph) NewEpoch() []UID {
	for key := range g.answers {
		delete(g.answers, key)
		g.suspectDependents(key.owner)
		g.suspect(key.owner)
		g.updateCycles(key.owner)
	}
	for i, e := range g.entries.all() {
		switch e.state {
		case observed:
			if e.marks&stale == 0 {
				e.marks |= stale
				g.stale++
			}
			if e.phase == Foreground || e.phase == Orphaning {
				g.suspect(i)
				g.suspectDependents(i)
			}
		case absent:
			g.doubtAbsence(i)
		case presumed, vacant:
		}
	}
	g.concernCut()
	return g.reconsider()
}

// dropAnswers forgets the results of live reads of the claims on an entry.
func (g *Graph) dropAnswers(i entryID) {
	if len(g.answers) == 0 {
		return
	}
	for _, c := range g.claimsOn(i) {
		delete(g.answers, g.answerKey(c))
	}
}

// dropMetAnswers drops the answers that the observation of an owner has made superfluous: answers
// at the observed coordinates, and, if the owner was not observed before, every Present answer.
// Absent answers at other coordinates stay.
func (g *Graph) dropMetAnswers(i entryID, before state) {
	if len(g.answers) == 0 {
		return
	}
	for _, c := range g.claimsOn(i) {
		key := g.answerKey(c)
		a, ok := g.answers[key]
		if ok && (g.isMet(c) || before != observed && a.presence == Present) {
			delete(g.answers, key)
		}
	}
}

// dropAnswerOf drops the answer for a claim that is about to be removed, unless dependents in
// another namespace claim the same cluster-scoped owner.
func (g *Graph) dropAnswerOf(c *claim) {
	if len(g.answers) == 0 {
		return
	}
	key := g.answerKey(c)
	if _, ok := g.answers[key]; !ok {
		return
	}
	for _, other := range g.claimsOn(c.owner) {
		if other != c && other.kind == key.kind && g.answerSpace(other.kind, other.namespace) == key.namespace &&
			g.names.same(other.name, c.name) {
			return
		}
	}
	delete(g.answers, key)
}
