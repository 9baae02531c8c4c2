package simulation

import (
	"bytes"
	"iter"
	"slices"

	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
)

// Graph is a small ownership graph with the users' actions on its objects.
type Graph struct {
	// Edges[d][o] is the reference of object d to object o.
	Edges [][]Edge
	// Fates are the users' actions on the objects.
	Fates []Fate
}

// Edge is an owner reference, or none.
type Edge uint8

// The edges.
const (
	NoEdge Edge = iota
	Refers
	Blocks
)

// Fate is an action of a user on an object.
type Fate uint8

// The fates.
const (
	Stays Fate = iota
	DeletedBackground
	DeletedForeground
	DeletedOrphan
)

// Search describes which graphs to enumerate.
type Search struct {
	Objects  int
	Edges    []Edge // the possible edges, with NoEdge
	Most     int    // the maximum number of references; 0: any number
	Loops    bool   // whether objects may own themselves
	Deletes  int    // the maximum number of deleted objects; at least one is deleted
	Policies []Fate // the policies of deletes; Stays is always possible
	// All enumerates all graphs, except for those that differ only in the order of their objects.
	All bool
}

// Graphs enumerates graphs, one of each set that differ only in the order of their objects, or in
// references without effect (isPlain).
func Graphs(s Search) iter.Seq[Graph] {
	return func(yield func(Graph) bool) {
		e := &enumeration{Search: s, code: make([]byte, s.Objects*s.Objects+s.Objects), yield: yield}
		e.permutations = ordersOf(s.Objects)
		e.fill(0, 0, 0)
	}
}

// enumeration counts through codes: the edges row by row, and the fates.
type enumeration struct {
	Search
	code         []byte
	permutations [][]int
	yield        func(Graph) bool
}

// ordersOf returns all orders of so many objects.
func ordersOf(objects int) (orders [][]int) {
	var extend func(chosen []int)
	extend = func(chosen []int) {
		if len(chosen) == objects {
			orders = append(orders, slices.Clone(chosen))
			return
		}
		for i := range objects {
			if !slices.Contains(chosen, i) {
				extend(append(chosen, i))
			}
		}
	}
	extend(nil)
	return orders
}

// fill tries all values of the code from a position on; it returns false when the caller wants no
// more.
func (e *enumeration) fill(at, references, deletes int) bool {
	n := e.Objects
	switch {
	case at == len(e.code):
		return deletes == 0 || !e.All && !e.isPlain() || !e.isSmallest() || e.yield(e.graph())
	case at < n*n && at/n == at%n && !e.Loops:
		return e.fill(at+1, references, deletes)
	case at < n*n:
		return e.fillEdge(at, references, deletes)
	default:
		return e.fillFate(at, references, deletes)
	}
}

func (e *enumeration) fillEdge(at, references, deletes int) bool {
	for _, edge := range e.Edges {
		more := references
		if edge != NoEdge {
			more++
		}
		if e.Most != 0 && more > e.Most {
			continue
		}
		e.code[at] = byte(edge)
		if !e.fill(at+1, more, deletes) {
			return false
		}
	}
	return true
}

func (e *enumeration) fillFate(at, references, deletes int) bool {
	e.code[at] = byte(Stays)
	if !e.fill(at+1, references, deletes) {
		return false
	}
	for _, fate := range e.Policies {
		if deletes == e.Deletes {
			break
		}
		e.code[at] = byte(fate)
		if !e.fill(at+1, references, deletes+1) {
			return false
		}
	}
	return true
}

// isPlain reports whether every reference of a graph, and every kind of reference other than the
// ordinary one, can affect a decision. The collector's decisions can only depend on objects that it
// deletes or detaches from.
//
// The doomed objects are all objects that may be deleted: the objects that users delete and, among
// their descendants, the objects whose owners are all doomed. Any other object has an owner that
// stays and is never in foreground deletion, so it stays too (R9). Touched objects are doomed or
// refer to a doomed object. The owners of all other objects stay unchanged: the collector makes no
// decision about these objects (R7), and no decision depends on their references. They have no
// references in a plain graph.
//
// Whether a reference blocks matters only for owners in foreground deletion (R10, R14): the objects
// that users delete with foreground, and their doomed descendants. References to other objects are
// all of one kind in a plain graph.
func (e *enumeration) isPlain() bool {
	return bytes.Equal(e.plain(), e.code)
}

// plain returns the code of the plain graph that represents this one.
func (e *enumeration) plain() []byte {
	doomed := e.doomed()
	foreground := e.below(func(fate Fate) bool { return fate == DeletedForeground }, doomed)
	touched := doomed
	for d := range e.Objects {
		touched |= bit(e.row(d)&doomed != 0) << d
	}
	plain := slices.Clone(e.code)
	for at := range e.Objects * e.Objects {
		switch d, o := at/e.Objects, at%e.Objects; {
		case plain[at] == byte(NoEdge):
		case touched>>d&1 == 0:
			plain[at] = byte(NoEdge)
		case foreground>>o&1 == 0:
			plain[at] = byte(e.ordinary())
		}
	}
	return plain
}

// ordinary returns the kind of a reference whose kind does not matter.
func (e *enumeration) ordinary() Edge {
	return e.Edges[slices.IndexFunc(e.Edges, func(edge Edge) bool { return edge != NoEdge })]
}

// row returns the set of owners that an object refers to, one bit each.
func (e *enumeration) row(d int) (owners byte) {
	for o := range e.Objects {
		owners |= bit(e.code[d*e.Objects+o] != byte(NoEdge)) << o
	}
	return owners
}

// doomed returns the largest set in which each object is deleted by a user or has all its owners in
// the set. It may contain objects that do not descend from a deleted object; below removes them.
func (e *enumeration) doomed() byte {
	set := byte(1)<<e.Objects - 1
	for {
		next := set
		for d := range e.Objects {
			if Fate(e.code[e.Objects*e.Objects+d]) == Stays && e.row(d)&^set != 0 {
				next &^= 1 << d
			}
		}
		next = e.below(func(fate Fate) bool { return fate != Stays }, next)
		if next == set {
			return set
		}
		set = next
	}
}

// below returns the objects whose fate satisfies is, and their descendants within a set.
func (e *enumeration) below(is func(Fate) bool, within byte) (set byte) {
	for i := range e.Objects {
		set |= bit(is(Fate(e.code[e.Objects*e.Objects+i]))) << i
	}
	for {
		next := set
		for d := range e.Objects {
			next |= bit(e.row(d)&set != 0) << d & (within | set)
		}
		if next == set {
			return set
		}
		set = next
	}
}

// isSmallest reports whether no other order of the objects has a smaller code.
func (e *enumeration) isSmallest() bool {
	return !slices.ContainsFunc(e.permutations, e.isSmallerWhen)
}

func (e *enumeration) isSmallerWhen(p []int) bool {
	n := e.Objects
	for at, here := range e.code {
		there := byte(0)
		if at < n*n {
			there = e.code[p[at/n]*n+p[at%n]]
		} else {
			there = e.code[n*n+p[at-n*n]]
		}
		if there != here {
			return there < here
		}
	}
	return false
}

func (e *enumeration) graph() Graph {
	g := Graph{Fates: make([]Fate, e.Objects), Edges: make([][]Edge, e.Objects)}
	for i := range e.Objects {
		g.Fates[i] = Fate(e.code[e.Objects*e.Objects+i])
		g.Edges[i] = make([]Edge, e.Objects)
		for o := range g.Edges[i] {
			g.Edges[i][o] = Edge(e.code[i*e.Objects+o])
		}
	}
	return g
}

// Schedule creates the objects, of different kinds, lets the collector observe them, and deletes
// objects according to their fates.
func (g Graph) Schedule() Schedule {
	var s Schedule
	ref := func(i int) client.Ref {
		return client.Ref{Namespace: "a", Kind: kindOf([]string{pod, set, widget}[i%3]), Name: string(rune('a' + i))}
	}
	for d, row := range g.Edges {
		step := Step{Op: Create, Ref: ref(d), UID: uidOf(d + 1)}
		for o, edge := range row {
			if edge != NoEdge {
				flag := ownership.Unset
				if edge == Blocks {
					flag = ownership.True
				}
				step.Owners = append(step.Owners, reference(ref(o).Kind, ref(o).Name, uidOf(o+1), flag))
			}
		}
		s.Steps = append(s.Steps, step)
	}
	s.Steps = append(s.Steps, Step{Op: CatchUp})
	for i, fate := range g.Fates {
		if fate != Stays {
			policy := [...]verdict.Propagation{DeletedBackground: verdict.Background, DeletedForeground: verdict.Foreground, DeletedOrphan: verdict.Orphan}[fate]
			s.Steps = append(s.Steps, Step{Op: Delete, Ref: ref(i), Policy: policy})
		}
	}
	return s
}
