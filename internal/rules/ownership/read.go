package ownership

import (
	"iter"
	"slices"
)

// Object returns the last observation of uid.
func (g *Graph) Object(uid UID) (Object, bool) {
	i := g.find(uid)
	if i == 0 || g.entries.at(i).state != observed {
		return Object{}, false
	}
	return g.object(i), true
}

// Place returns the kind and the namespace of an observed object. It is cheaper than Object.
func (g *Graph) Place(uid UID) (kind Kind, namespace string, isObserved bool) {
	i := g.find(uid)
	if i == 0 || g.entries.at(i).state != observed {
		return Kind{}, "", false
	}
	e := g.entries.at(i)
	return g.kinds.value(e.kind), g.namespaces.value(e.namespace), true
}

// Namespace returns the namespace in which uid was observed; empty if it is cluster-scoped or not
// observed.
func (g *Graph) Namespace(uid UID) string {
	if i := g.find(uid); i != 0 && g.entries.at(i).state == observed {
		return g.namespaces.value(g.entries.at(i).namespace)
	}
	return ""
}

// AnyStale reports whether Stale is true for any object.
func (g *Graph) AnyStale() bool { return g.stale > 0 }

// Stale reports whether an object was observed in an earlier epoch, and not since (R4).
func (g *Graph) Stale(uid UID) bool {
	e := g.entries.at(g.find(uid))
	return e.state == observed && e.marks&stale != 0
}

func (g *Graph) object(i entryID) Object {
	e := g.entries.at(i)
	o := Object{
		UID:             g.uidOf(i),
		Kind:            g.kinds.value(e.kind),
		Namespace:       g.namespaces.value(e.namespace),
		Name:            g.names.text(e.name),
		ResourceVersion: g.versionText(i),
		Phase:           e.phase,
		Finalizers:      slices.Clone(g.lists[e.finalizers]),
		Due:             g.due[i],
		Protected:       e.marks&protected != 0,
	}
	if c := g.cutOf(i); c != nil {
		o.MoreOwners = c.more
	}
	if n := g.countReferences(i); n > 0 {
		o.Owners = make([]Reference, 0, n)
	}
	for r := range g.referencesOf(i) {
		o.Owners = append(o.Owners, g.ownerReference(r))
	}
	return o
}

// ownerReference returns the reference as it was observed.
func (g *Graph) ownerReference(r *reference) Reference {
	c := g.claims.at(r.claim)
	return Reference{
		APIVersion:         g.versions.value(r.form.version()),
		Kind:               g.kinds.value(c.kind).Kind,
		Name:               g.names.text(c.name),
		UID:                g.uidOf(c.owner),
		Controller:         r.form.controller(),
		BlockOwnerDeletion: r.form.blocking(),
	}
}

func (g *Graph) versionText(i entryID) string {
	n := g.entries.at(i).version.number()
	if n == 0 {
		return g.oddVersions[i]
	}
	var text [20]byte
	at := len(text)
	for ; n > 0; n /= 10 {
		at--
		text[at] = byte('0' + n%10)
	}
	return string(text[at:])
}

// Owners returns the owner references of an observed object, in the stored
// order, with the presence of each owner.
func (g *Graph) Owners(uid UID) []Owner {
	i := g.find(uid)
	if i == 0 {
		return nil
	}
	n := g.countReferences(i)
	if n == 0 {
		return nil
	}
	owners := make([]Owner, 0, n)
	for r := range g.referencesOf(i) {
		c := g.claims.at(r.claim)
		stated, owner := c.statement(), g.ownerReference(r)
		owners = append(owners, g.owner(i, &stated, owner, Claim{
			Kind:      g.kinds.value(c.kind),
			Namespace: g.namespaces.value(g.answerSpace(c.kind, c.namespace)),
			Name:      owner.Name,
			UID:       owner.UID,
		}))
	}
	return owners
}

// owner returns an owner reference of an object with the presence of its claim.
func (g *Graph) owner(i entryID, c *statement, r Reference, stated Claim) Owner {
	o := Owner{Reference: r, Claim: stated}
	o.Presence, o.Phase, o.Obstacle = g.standingOf(c)
	o.Evidence = g.evidence(c, o.Presence)
	e := g.entries.at(c.owner)
	if e.state == observed && e.namespace != 0 && e.namespace != c.namespace {
		o.Elsewhere = g.namespaces.value(e.namespace)
	}
	own := g.cycles[i]
	o.InCycle = own != nil && own == g.cycles[c.owner] && o.Presence == Present
	o.Stale = e.state == observed && e.marks&stale != 0
	return o
}

// Presence returns the presence of a claim. Its cost does not depend on the number of claims that
// a dependent makes.
func (g *Graph) Presence(c Claim) Presence {
	kind, ok := g.kinds.find(c.Kind)
	if !ok {
		return Unknown
	}
	for _, stated := range g.claimsOn(g.find(c.UID)) {
		if stated.kind == kind && g.names.equal(stated.name, c.Name) &&
			g.namespaces.value(g.answerSpace(kind, stated.namespace)) == c.Namespace {
			presence, _, _ := g.standing(stated)
			return presence
		}
	}
	return Unknown
}

func (g *Graph) claimText(c *claim) Claim {
	return Claim{
		Kind:      g.kinds.value(c.kind),
		Namespace: g.namespaces.value(g.answerSpace(c.kind, c.namespace)),
		Name:      g.names.text(c.name),
		UID:       g.uidOf(c.owner),
	}
}

// Dependents returns the objects that have uid as an owner: their claim on it is Present. An
// object that names the UID with other coordinates is not a dependent. An object that refers to
// uid twice is returned twice.
func (g *Graph) Dependents(uid UID) iter.Seq[UID] {
	return func(yield func(UID) bool) {
		for _, c := range g.claimsOn(g.find(uid)) {
			if !g.isPresent(c) {
				continue
			}
			for r := range g.claimants(c) {
				if !yield(g.uidOf(r.dependent)) {
					return
				}
			}
		}
	}
}

// HasDependents reports whether Dependents has any, without iterating over them, or MayDepend.
func (g *Graph) HasDependents(uid UID) bool {
	return g.hasDependents(g.find(uid))
}

func (g *Graph) hasDependents(i entryID) bool {
	for _, c := range g.claimsOn(i) {
		if g.isPresent(c) {
			return true
		}
	}
	for dependent := range g.mayClaim(i) {
		if dependent != i {
			return true
		}
	}
	return false
}

// Blocking returns the dependents whose reference blocks a foreground deletion of uid,
// without iterating over the others.
func (g *Graph) Blocking(uid UID) iter.Seq[UID] {
	return func(yield func(UID) bool) {
		for _, c := range g.claimsOn(g.find(uid)) {
			if !g.isPresent(c) {
				continue
			}
			for r := range g.claimants(c) {
				if r.form.blocking() != True {
					break
				}
				if !yield(g.uidOf(r.dependent)) {
					return
				}
			}
		}
	}
}

// Orphans returns the objects that an orphan deletion of an observed object must detach: they name its UID, under
// whatever kind and name, in its namespace, or anywhere if it is cluster-scoped. Its DELETED event will answer all their
// claims. Claims that are Absent already are left out. An object that refers to uid twice is returned twice.
func (g *Graph) Orphans(uid UID) iter.Seq[UID] {
	return func(yield func(UID) bool) {
		i := g.find(uid)
		e := g.entries.at(i)
		for _, c := range g.claimsOn(i) {
			if e.namespace != 0 && e.namespace != c.namespace {
				continue // it cannot be valid (R5)
			}
			if presence, _, _ := g.standing(c); presence == Absent {
				continue
			}
			for r := range g.claimants(c) {
				if !yield(g.uidOf(r.dependent)) {
					return
				}
			}
		}
	}
}

// Doubtful returns claims of blocking references to an observed object that may be valid although they name another kind,
// because some servers serve one object in two groups: everything else matches, and no live read was made. They must be
// verified before a foreground deletion of the object ends. Claims that do not block cannot hold it. Claims from another
// namespace or scope are left out: they cannot be valid.
func (g *Graph) Doubtful(uid UID) []Claim {
	i := g.find(uid)
	e := g.entries.at(i)
	scope := Namespaced
	if e.namespace == 0 {
		scope = Cluster
	}
	var doubtful []Claim
	for _, c := range g.claimsOn(i) {
		blocks := g.references.at(c.first).form.blocking() == True // the first one shows whether any does
		fits := blocks && g.names.same(c.name, e.name) && g.facts[c.kind].scope == scope && (scope == Cluster || c.namespace == e.namespace)
		presence, _, obstacle := g.standing(c)
		if e.state == observed && fits && presence == Unknown && obstacle == Verifiable {
			doubtful = append(doubtful, g.claimText(c))
		}
	}
	return doubtful
}

// Cycle returns the members of the cycle of blocking references that the object is part of, sorted;
// nil if it is in no cycle. The slice is shared and must not be changed.
func (g *Graph) Cycle(uid UID) []UID {
	c := g.cycles[g.find(uid)]
	if c == nil {
		return nil
	}
	return slices.Clip(c.uids)
}

// Claimants returns the UIDs of all objects that name an owner with that UID, under any
// coordinates, sorted, without duplicates.
func (g *Graph) Claimants(uid UID) []UID {
	return slices.Compact(slices.Sorted(g.Claiming(uid)))
}

// Claiming returns the UIDs of Claimants in no order and with duplicates.
func (g *Graph) Claiming(uid UID) iter.Seq[UID] {
	return func(yield func(UID) bool) {
		for _, c := range g.claimsOn(g.find(uid)) {
			for r := range g.claimants(c) {
				if !yield(g.uidOf(r.dependent)) {
					return
				}
			}
		}
	}
}

// ClaimingElsewhere returns the objects of Claiming whose references give other coordinates than the owner's; all of
// them if the owner is not observed.
func (g *Graph) ClaimingElsewhere(uid UID) iter.Seq[UID] {
	return func(yield func(UID) bool) {
		i := g.find(uid)
		for _, c := range g.claimsOn(i) {
			if g.isMet(c) {
				continue
			}
			for r := range g.claimants(c) {
				if !yield(g.uidOf(r.dependent)) {
					return
				}
			}
		}
	}
}
