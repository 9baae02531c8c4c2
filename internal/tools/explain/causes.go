package explain

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// waits is the graph of the waits of many objects. Each object is explained once, whatever waits for it; the objects
// that wait for a cause are found backwards, from the cause.
type waits struct {
	explainer *Explainer
	waiters   []waiter
	numbers   map[waiterKey]int
	subjects  int // number of the objects in question, which are the first waiters
	causes    []cause
	byReason  map[string]int // index into causes
	steps     int            // waits looked at, in both directions
}

// waiterKey identifies a waiter. settles is true for an object that is reached through contents that have become fewer:
// its waits may be in another state then (settled).
type waiterKey struct {
	uid     ownership.UID
	settles bool
}

// waiter is an object in the graph, with the numbers of the objects that it waits for and that wait for it.
type waiter struct {
	object       *inventory.Object
	settles      bool
	next, before []int
}

// cause is a leaf, and the waiters that wait for it directly.
type cause struct {
	leaf    Wait
	waiters []int
}

// waitsOf returns the waits of some objects, and of the objects that they wait for.
func (e *Explainer) waitsOf(objects []*inventory.Object) *waits {
	g := &waits{explainer: e, numbers: map[waiterKey]int{}, byReason: map[string]int{}}
	for _, o := range objects {
		g.number(o, false)
	}
	g.subjects = len(g.waiters)
	for n := 0; n < len(g.waiters); n++ { // which grow meanwhile
		direct := e.direct(g.waiters[n].object)
		for i := range direct {
			direct[i].progresses = direct[i].progresses || g.waiters[n].settles
			g.add(n, &direct[i])
		}
	}
	for _, members := range g.cycles() {
		g.addCause(g.cycle(members), members...)
	}
	return g
}

func (g *waits) number(o *inventory.Object, settles bool) int {
	key := waiterKey{o.UID, settles}
	n, known := g.numbers[key]
	if !known {
		n = len(g.waiters)
		g.numbers[key] = n
		g.waiters = append(g.waiters, waiter{object: o, settles: settles})
	}
	return n
}

// add adds a wait of a waiter, with the waits below it.
func (g *waits) add(n int, w *Wait) {
	g.steps++
	switch {
	case w.isOpen():
		next := g.number(g.explainer.Inventory.Object(w.Object.UID), w.progresses)
		g.waiters[n].next = append(g.waiters[n].next, next)
		g.waiters[next].before = append(g.waiters[next].before, n)
	case len(w.Waits) > 0:
		for i := range w.Waits {
			w.Waits[i].progresses = w.Waits[i].progresses || w.progresses
			g.add(n, &w.Waits[i])
		}
	default:
		if w.progresses {
			w.State = settled(w)
		}
		g.addCause(*w, n)
	}
}

func (g *waits) addCause(leaf Wait, waiters ...int) {
	if leaf.State == Kept {
		return
	}
	reason := reasonOf(&leaf)
	n, known := g.byReason[reason]
	if !known {
		n = len(g.causes)
		g.byReason[reason] = n
		g.causes = append(g.causes, cause{leaf: leaf})
	}
	c := &g.causes[n]
	if compareTimes(leaf.Since, c.leaf.Since) < 0 {
		c.leaf = leaf
	}
	c.waiters = append(c.waiters, waiters...)
}

// waitingFor returns the objects in question that wait for a cause, in their order.
func (g *waits) waitingFor(cause int) []*inventory.Object {
	var found []int
	seen := map[int]bool{}
	open := slices.Clone(g.causes[cause].waiters)
	for len(open) > 0 {
		n := open[len(open)-1]
		open = open[:len(open)-1]
		g.steps++
		if seen[n] {
			continue
		}
		seen[n] = true
		if n < g.subjects {
			found = append(found, n)
		}
		open = append(open, g.waiters[n].before...)
	}
	slices.Sort(found)
	objects := make([]*inventory.Object, len(found))
	for i, n := range found {
		objects[i] = g.waiters[n].object
	}
	return objects
}

// cycle returns the wait of objects that wait for each other. It names the one that was deleted first.
func (g *waits) cycle(members []int) Wait {
	first := slices.MinFunc(members, func(a, b int) int {
		x, y := g.waiters[a].object, g.waiters[b].object
		return cmp.Or(requested(x).Compare(requested(y)), cmp.Compare(x.UID, y.UID))
	})
	o := g.waiters[first].object
	ref := refOf(o)
	w := Wait{
		On: OnCycle, Object: &ref, State: Unknown, Says: fmt.Sprintf("%s waits for itself", ref),
		Next: []Step{{"look at the object and its events", describe(o)}},
	}
	if more := len(members) - 1; more > 0 {
		w.Says = fmt.Sprintf("%s and %s wait for each other", ref, counted(more, "more object"))
	}
	return w
}

// cycles returns the strongly connected components that have a cycle, by Tarjan's algorithm.
func (g *waits) cycles() [][]int {
	t := tarjan{waits: g, order: make([]int, len(g.waiters)), lowest: make([]int, len(g.waiters)), isOpen: make([]bool, len(g.waiters))}
	for n := range g.waiters {
		if t.order[n] == 0 {
			t.visit(n)
		}
	}
	return t.found
}

type tarjan struct {
	*waits

	order, lowest []int // of the visits, from 1; the earliest visit known to be in the same component
	isOpen        []bool
	open          []int // visited, component not yet known
	count         int
	found         [][]int
}

func (t *tarjan) visit(n int) {
	t.count++
	t.order[n], t.lowest[n], t.isOpen[n] = t.count, t.count, true
	t.open = append(t.open, n)
	for _, next := range t.waiters[n].next {
		t.steps++
		if t.order[next] == 0 {
			t.visit(next)
			t.lowest[n] = min(t.lowest[n], t.lowest[next])
		} else if t.isOpen[next] {
			t.lowest[n] = min(t.lowest[n], t.order[next])
		}
	}
	if t.lowest[n] < t.order[n] {
		return
	}
	at := len(t.open) - 1
	for t.open[at] != n {
		at--
	}
	members := slices.Clone(t.open[at:])
	t.open = t.open[:at]
	for _, member := range members {
		t.isOpen[member] = false
	}
	if len(members) > 1 || slices.Contains(t.waiters[n].next, n) {
		t.found = append(t.found, members)
	}
}
