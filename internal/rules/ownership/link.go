package ownership

import "strings"

// link makes the dependent a claimant of every claim that its references state, as seen from a
// namespace, and returns the first reference.
func (g *Graph) link(dependent entryID, namespace spaceID, owners []Reference) refID {
	var first, last refID
	for n := range owners {
		owner := &owners[n]
		stated := g.claimOf(owner, namespace)
		id := g.references.add()
		r := g.references.at(id)
		r.dependent = dependent
		r.claim = stated
		r.form = newForm(g.versions.acquire(owner.APIVersion), owner.Controller, owner.BlockOwnerDeletion)
		g.join(g.claims.at(stated), id)
		if last == 0 {
			first = id
		} else {
			g.references.at(last).sibling = id
		}
		last = id
	}
	return first
}

// unlink removes a list of references, the claims that no reference states any longer, and the
// entries that are neither claimed nor observed any longer.
func (g *Graph) unlink(id refID) {
	for id != 0 {
		r := g.references.at(id)
		next := r.sibling
		stated := r.claim
		g.versions.release(r.form.version())
		g.leave(g.claims.at(stated), id)
		g.references.remove(id)
		if g.claims.at(stated).first == 0 {
			g.dropClaim(stated)
		}
		id = next
	}
}

// join adds a reference to the ring of the references that state the claim: a blocking one at the
// front, any other at the end. So the first one shows whether any blocks.
func (g *Graph) join(c *claim, id refID) {
	r := g.references.at(id)
	if c.first == 0 {
		r.next, r.prev = id, id
		c.first = id
		return
	}
	first := g.references.at(c.first)
	r.next, r.prev = c.first, first.prev
	g.references.at(first.prev).next = id
	first.prev = id
	if r.form.blocking() == True {
		c.first = id
	}
}

// leave removes a reference from that ring.
func (g *Graph) leave(c *claim, id refID) {
	r := g.references.at(id)
	g.passRest(c, id)
	if r.next == id {
		c.first = 0
		return
	}
	g.references.at(r.prev).next = r.next
	g.references.at(r.next).prev = r.prev
	if c.first == id {
		c.first = r.next
	}
}

// claimOf returns the claim that a reference states; it adds the claim if this is the first one.
func (g *Graph) claimOf(owner *Reference, namespace spaceID) claimID {
	i := g.entryOf(owner.UID)
	if kind, ok := g.kinds.find(owner.OwnerKind()); ok {
		if id := g.findClaim(claimKey{i, kind, namespace, owner.Name}); id != 0 {
			return id
		}
	}
	id := g.claims.add()
	c := g.claims.at(id)
	c.owner = i
	c.kind = g.acquireKind(owner.OwnerKind())
	c.namespace = g.namespaces.acquire(g.namespaces.value(namespace))
	e := g.entries.at(i)
	if g.names.equal(e.name, owner.Name) {
		c.name = g.names.share(&e.name)
	} else {
		c.name = g.names.add(owner.Name)
	}
	g.facts[c.kind].claims++
	g.insertClaim(id)
	return id
}

// acquireName keeps the name of an entry, together with that of a claim on it, or based on that of its owner.
func (g *Graph) acquireName(e *entry, name string) nameID {
	if c := g.claims.at(e.claims); e.claims != 0 && g.names.equal(c.name, name) {
		return g.names.share(&c.name)
	}
	if e.references == 0 {
		return g.names.add(name)
	}
	claim := g.claims.at(g.references.at(e.references).claim)
	before := claim.name
	acquired := g.names.derive(name, &claim.name)
	if owner := g.entries.at(claim.owner); claim.name != before && owner.name == before {
		g.setName(claim.owner, g.names.share(&claim.name)) // they still share it
	}
	return acquired
}

// findClaim looks up a claim. Nearly every owner has only one claim, the first; the map holds all
// others. So it stays small, and a thousand different claims on one UID cost no more than one
// claim on each of a thousand UIDs.
func (g *Graph) findClaim(key claimKey) claimID {
	first := g.entries.at(key.owner).claims
	c := g.claims.at(first)
	if first == 0 || c.kind == key.kind && c.namespace == key.namespace && g.names.equal(c.name, key.name) {
		return first
	}
	return g.laterClaims[key]
}

func (g *Graph) insertClaim(id claimID) {
	c := g.claims.at(id)
	e := g.entries.at(c.owner)
	if e.claims == 0 {
		e.claims = id
		return
	}
	first := g.claims.at(e.claims)
	c.prev, c.next = e.claims, first.next
	if first.next != 0 {
		g.claims.at(first.next).prev = id
	}
	first.next = id
	g.laterClaims[g.keyOf(c)] = id
}

// dropClaim removes a claim that no reference states, together with its answer.
func (g *Graph) dropClaim(id claimID) {
	c := g.claims.at(id)
	e := g.entries.at(c.owner)
	if c.prev == 0 {
		e.claims = c.next
		if c.next != 0 {
			delete(g.laterClaims, g.keyOf(g.claims.at(c.next)))
		}
	} else {
		g.claims.at(c.prev).next = c.next
		delete(g.laterClaims, g.keyOf(c))
	}
	if c.next != 0 {
		g.claims.at(c.next).prev = c.prev
	}
	g.dropAnswerOf(c)
	g.facts[c.kind].claims--
	g.releaseKind(c.kind)
	g.namespaces.release(c.namespace)
	g.names.release(c.name)
	owner := c.owner
	g.claims.remove(id)
	if e.claims == 0 && e.state != observed {
		g.drop(owner)
	}
}

// acquireKind and releaseKind count the uses of a kind; facts runs parallel to
// the table of kinds.
func (g *Graph) acquireKind(k Kind) kindID {
	id := g.kinds.acquire(k)
	for int(id) >= len(g.facts) {
		g.facts = append(g.facts, kindFacts{})
	}
	return id
}

func (g *Graph) releaseKind(id kindID) { g.kinds.release(id) }

// acquireFinalizers interns a list of finalizers; the key distinguishes lists that a plain join
// would not.
func (g *Graph) acquireFinalizers(list []string) listID {
	if len(list) == 0 {
		return 0
	}
	var key strings.Builder
	for _, f := range list {
		key.WriteString(strings.ReplaceAll(strings.ReplaceAll(f, `\`, `\\`), ",", `\,`))
		key.WriteByte(',')
	}
	id := g.finalizers.acquire(key.String())
	for int(id) >= len(g.lists) {
		g.lists = append(g.lists, nil)
	}
	if g.lists[id] == nil {
		g.lists[id] = make([]string, len(list))
		for n, f := range list {
			g.lists[id][n] = strings.Clone(f)
		}
	}
	return id
}

func (g *Graph) releaseFinalizers(id listID) {
	g.finalizers.release(id)
	if id != 0 && g.finalizers.rows[id].uses == 0 {
		g.lists[id] = nil
	}
}
