package ownership

import "iter"

// Roots are what a deletion begins with.
type Roots struct {
	// UIDs are objects that go. One that is not observed, or is being deleted already, has dependents only.
	UIDs []UID
	// Orphans is set if the dependents of UIDs stay.
	Orphans bool
	// Namespace is a namespace all of whose objects go, or those of Kind; empty for none.
	Namespace string
	// Kind is a kind all of whose objects go, in Namespace or everywhere; the zero Kind for none.
	Kind Kind
	// Beside is an object that goes because of its owners. Whatever has lost one of these owners, too, goes with it. Empty
	// for none.
	Beside UID
	// Contents has the kinds whose objects contain others, such as namespaces. A function returns what goes with the object
	// of a name: a namespace all of whose objects go, or a kind, or neither. It must not call the Graph.
	Contents map[Kind]func(name string) (namespace string, kind Kind)
}

// Closure returns the observed objects that a deletion deletes if nobody refuses: the objects with which it begins, and
// those that no other owner keeps (R9), again and again. Objects that are being deleted already are not returned, and
// nothing goes because of them: their deletions were decided before. An owner that may be absent keeps nothing, and a
// finalizer "orphan" neither, because a foreground deletion overrules it (R10): the closure is too large rather than too
// small. The contents of a namespace go with it whether the deletion begins with it or its owner takes it along.
//
// The cost is that of the closure, and of a look at all objects for namespaces and kinds: one look for the first ones, and
// one for all that were found since the last look. A caller that stops early pays
// for the part that it has seen. Graph must not be changed meanwhile.
func (g *Graph) Closure(of Roots) iter.Seq2[UID, Kind] {
	return func(yield func(UID, Kind) bool) {
		c := closure{
			Graph: g, going: make(map[entryID]struct{}),
			contents: make(map[kindID]func(string) (string, Kind)), spaces: make(map[spaceID]struct{}), all: make(map[kindID]struct{}),
			yield: func(i entryID) bool { return yield(g.uidOf(i), g.kinds.value(g.entries.at(i).kind)) },
		}
		for kind, contents := range of.Contents {
			if id, isKnown := g.kinds.find(kind); isKnown {
				c.contents[id] = contents
			}
		}
		c.run(of)
	}
}

// closure is a closure that is being found.
type closure struct {
	*Graph

	going    map[entryID]struct{}
	pending  []entryID // the dependents of these were not looked at
	contents map[kindID]func(name string) (string, Kind)
	spaces   map[spaceID]struct{} // the objects of these namespaces and kinds were not looked at
	all      map[kindID]struct{}
	yield    func(entryID) bool
}

func (c *closure) run(of Roots) {
	if !c.begin(of) {
		return
	}
	for c.followAll() && len(c.spaces)+len(c.all) > 0 {
		if !c.fill() {
			return
		}
	}
}

// followAll adds the dependents of all that go.
func (c *closure) followAll() bool {
	for len(c.pending) > 0 {
		last := len(c.pending) - 1
		owner := c.pending[last]
		c.pending = c.pending[:last]
		if !c.follow(owner) {
			return false
		}
	}
	return true
}

// fill adds the contents of all containers that go.
func (c *closure) fill() bool {
	spaces, all := c.spaces, c.all
	c.spaces, c.all = make(map[spaceID]struct{}), make(map[kindID]struct{})
	for i, e := range c.entries.all() {
		_, isInside := spaces[e.namespace]
		_, isInstance := all[e.kind]
		if (isInside || isInstance) && !c.add(i) {
			return false
		}
	}
	return true
}

// contain notes what an object that goes contains.
func (c *closure) contain(i entryID) {
	contents := c.contents[c.entries.at(i).kind]
	if contents == nil {
		return
	}
	namespace, kind := contents(c.object(i).Name)
	if space, isKnown := c.namespaces.find(namespace); isKnown && namespace != "" {
		c.spaces[space] = struct{}{}
	}
	if id, isKnown := c.kinds.find(kind); isKnown && kind != (Kind{}) {
		c.all[id] = struct{}{}
	}
}

// begin adds the objects with which the deletion begins. Like add and follow, it returns false if the caller has stopped.
func (c *closure) begin(of Roots) bool {
	for _, uid := range of.UIDs {
		i := c.find(uid)
		if i == 0 {
			continue
		}
		if !c.add(i) {
			return false
		}
		if _, isGoing := c.going[i]; !isGoing { // absent, or being deleted
			c.going[i] = struct{}{}
			c.pending = append(c.pending, i)
		}
	}
	if of.Orphans {
		c.pending = nil
	}
	return c.addBeside(c.find(of.Beside)) && c.addAll(of)
}

// addBeside adds what has lost an owner of an object, too. An owner is lost that is not there, as the references name it, or
// that goes.
func (c *closure) addBeside(i entryID) bool {
	if i == 0 {
		return true
	}
	for r := range c.referencesOf(i) {
		claim := c.claims.at(r.claim)
		if presence, phase, _ := c.standing(claim); presence == Present && phase == Active {
			continue
		}
		if !c.addClaimants(claim) {
			return false
		}
	}
	return true
}

// addAll adds the objects of a namespace, of a kind, or of both.
func (c *closure) addAll(of Roots) bool {
	space, hasSpace := c.namespaces.find(of.Namespace)
	kind, hasKind := c.kinds.find(of.Kind)
	if !hasSpace || !hasKind || space == 0 && kind == 0 {
		return true // nothing has that name, or none is given
	}
	for i, e := range c.entries.all() {
		if (space == 0 || e.namespace == space) && (kind == 0 || e.kind == kind) && !c.add(i) {
			return false
		}
	}
	return true
}

// add adds an object that goes.
func (c *closure) add(i entryID) bool {
	e := c.entries.at(i)
	if _, isGoing := c.going[i]; isGoing || e.state != observed || e.phase != Active {
		return true
	}
	c.going[i] = struct{}{}
	if e.claims != 0 {
		c.pending = append(c.pending, i)
	}
	c.contain(i)
	return c.yield(i)
}

// follow adds the dependents of an owner that have no other owner.
func (c *closure) follow(owner entryID) bool {
	for _, claim := range c.claimsOn(owner) {
		if e := c.entries.at(owner); e.state == observed && !c.isPresent(claim) {
			continue
		}
		if !c.addClaimants(claim) {
			return false
		}
	}
	return true
}

// addClaimants adds the objects that have a claim, and that no owner keeps.
func (c *closure) addClaimants(of *claim) bool {
	for r := range c.claimants(of) {
		if !c.isKept(r.dependent) && !c.add(r.dependent) {
			return false
		}
	}
	return true
}

// isKept reports whether an object has an owner that stays.
func (c *closure) isKept(dependent entryID) bool {
	for r := range c.referencesOf(dependent) {
		claim := c.claims.at(r.claim)
		_, isGoing := c.going[claim.owner]
		if presence, phase, _ := c.standing(claim); !isGoing && presence == Present && phase == Active {
			return true
		}
	}
	return false
}
