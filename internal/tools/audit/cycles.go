package audit

import (
	"fmt"
	"strings"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// maxMembers bounds the number of members of a cycle that a message names.
const maxMembers = 8

// findCycles finds the objects that own themselves, directly or through others: the strongly connected
// components of the references to owners that exist. It is Tarjan's algorithm.
func (c *checker) findCycles(namespace string) {
	s := search{graph: c.graph, seen: make(map[ownership.UID]*visit)}
	for _, o := range c.inv.Objects {
		if len(o.Owners) > 0 && s.seen[o.UID] == nil {
			s.visit(o.UID)
		}
	}
	for _, members := range s.cycles {
		if first := c.first(members); namespace == "" || first.Namespace == namespace {
			c.found(Cycle, first, -1, describeCycle(members))
		}
	}
}

// search is a search for cycles.
type search struct {
	graph  *ownership.Graph
	seen   map[ownership.UID]*visit
	stack  []ownership.UID
	cycles [][]ownership.Object
}

// visit is the state of an object during the search.
type visit struct {
	order, lowest int
	onStack       bool
}

func (s *search) visit(uid ownership.UID) *visit {
	v := &visit{order: len(s.seen), lowest: len(s.seen), onStack: true}
	s.seen[uid] = v
	s.stack = append(s.stack, uid)
	ownsItself := false
	for _, owner := range s.graph.Owners(uid) {
		if owner.Presence != ownership.Present {
			continue
		}
		ownsItself = ownsItself || owner.Claim.UID == uid
		switch next := s.seen[owner.Claim.UID]; {
		case next == nil:
			v.lowest = min(v.lowest, s.visit(owner.Claim.UID).lowest)
		case next.onStack:
			v.lowest = min(v.lowest, next.order)
		}
	}
	if v.lowest == v.order {
		s.complete(uid, ownsItself)
	}
	return v
}

// complete pops a component off the stack, down to its root.
func (s *search) complete(root ownership.UID, ownsItself bool) { //nolint:revive // not a control flag
	var members []ownership.Object
	for done := false; !done; {
		last := s.stack[len(s.stack)-1]
		s.stack = s.stack[:len(s.stack)-1]
		s.seen[last].onStack = false
		if o, ok := s.graph.Object(last); ok {
			members = append(members, o)
		}
		done = last == root
	}
	if len(members) > 1 || ownsItself {
		s.cycles = append(s.cycles, members)
	}
}

// first returns the member of a cycle that comes first in the inventory. The cycle is reported for it.
func (c *checker) first(members []ownership.Object) *inventory.Object {
	in := make(map[ownership.UID]bool, len(members))
	for i := range members {
		in[members[i].UID] = true
	}
	for _, o := range c.inv.Objects {
		if in[o.UID] {
			return o
		}
	}
	return nil
}

func describeCycle(members []ownership.Object) string {
	if len(members) == 1 {
		return "It is its own owner."
	}
	var names []string
	for n := range members {
		if n == maxMembers {
			names = append(names, "…")
			break
		}
		names = append(names, members[n].Kind.String()+" "+members[n].Name)
	}
	return fmt.Sprintf("%d objects own each other: %s.", len(members), strings.Join(names, ", "))
}
