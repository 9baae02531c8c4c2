package ownership

import "slices"

// Objects in foreground deletion may block each other in a circle; then none of the deletions
// would ever complete (R10). Such a cycle is a strongly connected component of the graph whose
// vertices are the observed objects in phase Foreground, and whose edges are the blocking
// references between them: the dependent blocks the owner. An object that blocks itself is a
// component too.
//
// An edge appears or disappears only when one of its two ends changes, and every new cycle goes
// through the object that changed. So it is enough to search from that object at each change and
// to remember the result.

// cycle is one component, shared by all its members.
type cycle struct {
	members []entryID // sorted
	uids    []UID     // the same, sorted
}

func (g *Graph) isForeground(i entryID) bool {
	e := g.entries.at(i)
	return e.state == observed && e.phase == Foreground
}

// updateCycles updates the cycles after a change of an object.
func (g *Graph) updateCycles(i entryID) {
	if g.isForeground(i) {
		g.suspectCutForeground()
	}
	if old := g.cycles[i]; old != nil {
		for _, member := range old.members {
			delete(g.cycles, member)
			g.suspect(member)
		}
		for _, component := range g.components(old.members) {
			g.setCycle(component)
		}
	}
	if !g.isForeground(i) {
		return
	}
	reached := g.search(i)
	if reached == nil {
		return
	}
	for _, component := range g.components(reached) {
		if _, ok := slices.BinarySearch(component, i); ok {
			g.setCycle(component)
		}
	}
}

func (g *Graph) setCycle(members []entryID) {
	found := &cycle{members: members}
	for _, member := range members {
		found.uids = append(found.uids, g.uidOf(member))
		g.cycles[member] = found
		g.suspect(member)
	}
	slices.Sort(found.uids)
}

// blocked yields the owners in foreground deletion that an object blocks, as long as visit wants
// more. It returns the number of references it looked at.
func (g *Graph) blocked(i entryID, visit func(entryID) bool) (looked int) {
	for r := range g.referencesOf(i) {
		looked++
		c := g.claims.at(r.claim)
		if r.form.blocking() == True && g.isForeground(c.owner) && g.isPresent(c) && !visit(c.owner) {
			break
		}
	}
	return looked
}

// blockers yields the dependents in foreground deletion that block an object, in the same way.
func (g *Graph) blockers(i entryID, visit func(entryID) bool) (looked int) {
	for _, c := range g.claimsOn(i) {
		looked++
		if !g.isPresent(c) {
			continue
		}
		for r := range g.claimants(c) {
			looked++
			if r.form.blocking() != True {
				break // the blocking ones come first
			}
			if g.isForeground(r.dependent) && !visit(r.dependent) {
				return looked
			}
		}
	}
	return looked
}

// search looks for a path along the edges from an object back to itself, and returns a set that
// contains its whole component, or nil if there is no such path. It alternates between walking up
// to the owners and down to the dependents, and stops when either side is exhausted: the end of a
// long chain costs as little as its beginning.
func (g *Graph) search(i entryID) []entryID {
	if !hasAny(g.blocked, i) || !hasAny(g.blockers, i) {
		return nil
	}
	up, down := newWalk(i), newWalk(i)
	for {
		side, next := up, g.blocked
		if down.cost < up.cost {
			side, next = down, g.blockers
		}
		if side.expand(next) {
			continue
		}
		if side.returned {
			return side.reached
		}
		return nil
	}
}

type neighbours func(i entryID, visit func(entryID) bool) (looked int)

func hasAny(next neighbours, i entryID) (found bool) {
	next(i, func(entryID) bool {
		found = true
		return false
	})
	return found
}

// walk is one side of a search.
type walk struct {
	start    entryID
	reached  []entryID // in the order in which they were reached
	seen     map[entryID]struct{}
	expanded int  // the first so many of reached are expanded
	cost     int  // references looked at
	returned bool // the walk has come back to its start
}

func newWalk(start entryID) *walk {
	return &walk{start: start, reached: []entryID{start}, seen: map[entryID]struct{}{start: {}}}
}

// expand looks at one more object; it returns false when none is left.
func (w *walk) expand(next neighbours) bool {
	if w.expanded == len(w.reached) {
		return false
	}
	i := w.reached[w.expanded]
	w.expanded++
	w.cost += 1 + next(i, func(n entryID) bool {
		w.returned = w.returned || n == w.start
		if _, ok := w.seen[n]; !ok {
			w.seen[n] = struct{}{}
			w.reached = append(w.reached, n)
		}
		return true
	})
	return true
}

// components finds the cycles among the given objects: the strongly connected components with an
// edge inside, each sorted. It is Tarjan's algorithm with an explicit stack, because a chain of
// owners may be arbitrarily long.
func (g *Graph) components(objects []entryID) [][]entryID {
	t := &tarjan{graph: g, visits: make(map[entryID]*visit, len(objects))}
	for _, i := range objects {
		t.visits[i] = nil // a member, not yet visited
	}
	for _, i := range objects {
		if t.visits[i] == nil {
			t.walk(i)
		}
	}
	return t.found
}

type tarjan struct {
	graph  *Graph
	visits map[entryID]*visit
	open   []*visit // visited, component not yet known
	found  [][]entryID
}

type visit struct {
	object  entryID
	edges   []entryID
	next    int // index into edges
	number  int // order of the visits, from 1
	lowest  int // number of the earliest visit known to be in the same component
	isOpen  bool
	selfish bool // has an edge to itself
}

func (t *tarjan) enter(i entryID) *visit {
	v := &visit{object: i, isOpen: true}
	t.graph.blocked(i, func(owner entryID) bool {
		if _, member := t.visits[owner]; member {
			v.edges = append(v.edges, owner)
			v.selfish = v.selfish || owner == i
		}
		return true
	})
	t.open = append(t.open, v)
	t.visits[i] = v
	return v
}

// walk visits everything that is reachable from an object.
func (t *tarjan) walk(start entryID) {
	path := []*visit{t.enter(start)}
	count := 1
	path[0].number, path[0].lowest = count, count
	for len(path) > 0 {
		v := path[len(path)-1]
		if v.next < len(v.edges) {
			w := t.visits[v.edges[v.next]]
			v.next++
			switch {
			case w == nil:
				w = t.enter(v.edges[v.next-1])
				count++
				w.number, w.lowest = count, count
				path = append(path, w)
			case w.isOpen:
				v.lowest = min(v.lowest, w.number)
			}
			continue
		}
		path = path[:len(path)-1]
		if len(path) > 0 {
			above := path[len(path)-1]
			above.lowest = min(above.lowest, v.lowest)
		}
		if v.lowest == v.number {
			t.closeComponent(v)
		}
	}
}

// closeComponent removes the component that a visit started from the open ones.
func (t *tarjan) closeComponent(root *visit) {
	var members []entryID
	for {
		v := t.open[len(t.open)-1]
		t.open = t.open[:len(t.open)-1]
		v.isOpen = false
		members = append(members, v.object)
		if v == root {
			break
		}
	}
	if len(members) > 1 || root.selfish {
		slices.Sort(members)
		t.found = append(t.found, members)
	}
}
