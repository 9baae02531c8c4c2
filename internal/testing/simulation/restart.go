package simulation

import (
	"bytes"
	"slices"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// standstill describes a state that a crash can leave; key names it. A new collector knows nothing,
// so the steps after a crash depend only on the server's objects and the writes in flight, not on
// the steps before. An exhaustive search therefore has to follow each such state only once, for all
// graphs and steps that lead to it.
//
// Objects that differ only in their names are treated as equal, as in Graphs. The state includes
// the history that the oracle uses: earlier phases of objects, and the part of the history that the
// sender of a late write had observed.
type standstill struct {
	lives []byte      // of each object: its state and its earlier phases
	edges [][]byte    // edges[d][o] is the reference of object d to object o
	late  []lateWrite // in the order in which they will arrive
}

// lateWrite is a write that arrives after the restart and is still valid.
type lateWrite struct {
	verb           string
	what           string // the policy, or the finalizers
	target, sender int
	owners         []byte // the references that it leaves, as in edges
	unseen         []byte // of each object, the number of its versions that the sender had not observed
}

// standstill describes the cluster after a crash. It assumes that all objects and references are
// created at the beginning, as in a Graph.
func (w *cluster) standstill(crash Step) standstill {
	calls := slices.Clone(w.ghosts)
	for _, worker := range w.in.workers {
		if !worker.call.executed && !worker.call.isRead() && crash.Failure != "lost" {
			calls = append(calls, worker.call)
		}
	}
	index := make(map[ownership.UID]int, len(w.server.lives))
	for i, l := range w.server.lives {
		index[l.uid] = i
	}
	var s standstill
	for _, l := range w.server.lives {
		state := byte(ownership.Active)
		row := make([]byte, len(index))
		if v := l.now(); v != nil {
			state = 1 + byte(v.Phase)
			row = edgesOf(v.Owners, index)
		}
		s.lives = append(s.lives, state<<2|bit(l.wasForeground)<<1|bit(l.wasOrphaning))
		s.edges = append(s.edges, row)
	}
	for _, c := range calls {
		// A write whose precondition is no longer met is refused whenever it arrives.
		if v := w.server.lookup(c.ref); v != nil && v.UID == c.uid && v.ResourceVersion == c.version {
			s.late = append(s.late, w.lateWrite(c, index))
		}
	}
	return s
}

func (w *cluster) lateWrite(c *call, index map[ownership.UID]int) lateWrite {
	late := lateWrite{
		verb: c.verb, what: string(c.propagation), target: index[c.uid], sender: index[c.worker.uid], owners: edgesOf(c.owners, index),
	}
	for _, f := range c.finalizers {
		late.what += f + " "
	}
	for _, l := range w.server.lives {
		unseen := byte(0)
		for _, v := range l.versions {
			unseen += bit(v.revision > c.worker.seen[w.server.index(v.Kind)])
		}
		late.unseen = append(late.unseen, unseen)
	}
	return late
}

func edgesOf(owners []ownership.Reference, index map[ownership.UID]int) []byte {
	row := make([]byte, len(index))
	for _, r := range owners {
		row[index[r.UID]] = 1 + byte(r.BlockOwnerDeletion)
	}
	return row
}

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// key returns the same text for standstills that differ in the order of their objects only. The
// orders are all permutations.
func (s standstill) key(orders [][]int) string {
	var smallest, code []byte
	for _, order := range orders {
		code = s.code(code[:0], order)
		if smallest == nil || bytes.Compare(code, smallest) < 0 {
			smallest = append(smallest[:0], code...)
		}
	}
	return string(smallest)
}

// code encodes a standstill with its objects in an order.
func (s standstill) code(code []byte, order []int) []byte {
	for _, i := range order {
		code = append(code, s.lives[i])
	}
	for _, i := range order {
		code = inOrder(code, s.edges[i], order)
	}
	for _, late := range s.late {
		code = append(append(code, late.verb...), late.what...)
		code = append(code, byte(slices.Index(order, late.target)), byte(slices.Index(order, late.sender)))
		code = inOrder(inOrder(code, late.owners, order), late.unseen, order)
	}
	return code
}

func inOrder(code, values []byte, order []int) []byte {
	for _, i := range order {
		code = append(code, values[i])
	}
	return code
}
