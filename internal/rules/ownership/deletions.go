package ownership

import (
	"slices"
)

// maxDeletions bounds the pairs of kind and finalizer that are counted separately: users choose both.
const maxDeletions = 1000

// OtherFinalizers stands for the finalizers of all kinds beyond the first thousand pairs of a kind and a
// finalizer. No finalizer has this name: their names have a domain, or are Kubernetes' own.
const OtherFinalizers = "others"

// Deletion counts the deletions of objects of one kind that have, or had, one finalizer. An object with
// several finalizers counts for each of them.
type Deletion struct {
	Kind      Kind   // zero for OtherFinalizers
	Finalizer string // empty for objects without finalizers
	// Objects counts the objects that are being deleted now, and Oldest is the earliest of their Due.
	Objects int
	Oldest  int64
	// Gone counts the objects that lost the finalizer while they were being deleted, or are gone.
	Gone uint64
}

// deletionKey identifies a Deletion.
type deletionKey struct {
	kind      Kind
	finalizer string
}

// noFinalizers returns the list that counts for an object without finalizers.
func noFinalizers() []string { return []string{""} }

// finalizersOf returns the finalizers under which an entry is counted.
func (g *Graph) finalizersOf(list listID) []string {
	if list == 0 {
		return noFinalizers()
	}
	return g.lists[list]
}

// deletionOf returns the key under which a finalizer of a kind is counted.
func (g *Graph) deletionOf(kind Kind, finalizer string) deletionKey {
	key := deletionKey{kind, finalizer}
	if _, known := g.finished[key]; !known && len(g.finished) >= maxDeletions {
		return deletionKey{finalizer: OtherFinalizers}
	}
	return key
}

// noteDeletion records when an observed entry that is being deleted should be gone, and creates the counts of its
// finalizers.
func (g *Graph) noteDeletion(i entryID, due int64) {
	e := g.entries.at(i)
	if e.phase == Active {
		delete(g.due, i)
		return
	}
	g.due[i] = due
	for _, f := range g.finalizersOf(e.finalizers) {
		g.finished[g.deletionOf(g.kinds.value(e.kind), f)] += 0 // a count that rises later begins at zero
	}
}

// countFinished counts the finalizers of the previous observation of an entry that are not among the remaining ones.
func (g *Graph) countFinished(before *entry, remaining []string) {
	if before.state != observed || before.phase == Active {
		return
	}
	for _, f := range g.finalizersOf(before.finalizers) {
		if !slices.Contains(remaining, f) {
			g.finished[g.deletionOf(g.kinds.value(before.kind), f)]++
		}
	}
}

// earliest returns the earlier of two times; zero means unknown.
func earliest(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
