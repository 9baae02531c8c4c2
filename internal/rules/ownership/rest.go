package ownership

import "slices"

// A change of a crowded owner concerns millions of objects. A graph whose lock others wait for returns them in pieces.

// rest are the claimants of a crowded claim that a call has not returned.
type rest struct {
	claim claimID
	next  refID // the first of them; zero: none is left
	when  when
}

// when says which of the objects that a change may concern are returned, see reconsider.go.
type when uint8

const (
	ifUnsettled when = iota // those that may need an action: the second list
	always                  // the first list
)

// InPieces makes calls return no more than n of the objects that state the same claim. Rest returns the others. The
// caller calls it until there are no more, and may release its lock before each call.
func (g *Graph) InPieces(n int) { g.piece = n }

// HasRest reports whether there are objects to reconsider that no call has returned yet.
func (g *Graph) HasRest() bool { return len(g.rest) > 0 }

// Rest returns the next objects to reconsider, sorted, each once, and whether there are more. Like all calls, it returns
// those that need to be reconsidered by now. Crowded owners take turns.
func (g *Graph) Rest() (uids []UID, more bool) {
	for left := g.piece; left > 0 && len(g.rest) > 0; {
		of := g.rest[0]
		g.rest = slices.Delete(g.rest, 0, 1)
		for ; left > 0 && of.next != 0; left-- {
			of.next = g.addClaimant(of.claim, of.next, of.when)
		}
		if of.next != 0 {
			g.rest = append(g.rest, of)
		}
	}
	return g.reconsider(), g.HasRest()
}

// addClaimants adds the objects that make a claim to one of the two lists, and leaves those of a crowded one to Rest.
func (g *Graph) addClaimants(id claimID, when when) {
	n := 0
	for at := g.claims.at(id).first; at != 0; n++ {
		if g.piece > 0 && n == g.piece {
			g.leaveRest(rest{id, at, when})
			return
		}
		at = g.addClaimant(id, at, when)
	}
}

// addClaimant adds the object with a reference to a list, and returns the next reference that states the claim, or zero.
func (g *Graph) addClaimant(id claimID, at refID, when when) (next refID) {
	r := g.references.at(at)
	if when == always {
		g.certain = append(g.certain, r.dependent)
	} else {
		g.suspect(r.dependent)
	}
	return g.after(g.claims.at(id), r)
}

// after returns the reference after another one that states a claim, or zero after the last.
func (g *Graph) after(c *claim, r *reference) refID {
	if r.next == c.first {
		return 0
	}
	return r.next
}

// leaveRest leaves claimants to Rest. An earlier rest of the same claim begins anew: this call has returned the others.
func (g *Graph) leaveRest(of rest) {
	for n := range g.rest {
		if before := &g.rest[n]; before.claim == of.claim {
			before.next, before.when = of.next, max(before.when, of.when)
			return
		}
	}
	g.rest = append(g.rest, of)
}

// passRest is called before a reference leaves the ring of a claim.
func (g *Graph) passRest(c *claim, id refID) {
	for n := range g.rest {
		if g.rest[n].next == id {
			g.rest[n].next = g.after(c, g.references.at(id))
		}
	}
}
