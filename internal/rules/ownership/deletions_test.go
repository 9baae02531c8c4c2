package ownership_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// deleted returns an object in deletion.
func deleted(name string, version int, due int64, finalizers ...string) ownership.Object {
	return ownership.Object{
		UID: ownership.UID("uid-" + name), Kind: ownership.Kind{Kind: "Widget"}, Namespace: "shop", Name: name,
		ResourceVersion: fmt.Sprint(version), Phase: ownership.PhaseOf(true, finalizers), Finalizers: finalizers, Due: due,
	}
}

// Deletions are counted by finalizer: pending ones, and finished ones when the finalizer or the object is gone.
func TestDeletionsAreCountedByFinalizer(t *testing.T) {
	g := ownership.New()
	widget := ownership.Kind{Kind: "Widget"}
	expect := func(when string, want ...ownership.Deletion) {
		t.Helper()
		if want == nil {
			want = []ownership.Deletion{}
		}
		if diff := cmp.Diff(want, deletionsOf(g)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
		if err := g.Check(); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	alive := deleted("a", 1, 0, "x", "y")
	alive.Phase = ownership.Active
	g.Observe(alive)
	expect("nothing is being deleted")

	g.Observe(deleted("a", 2, 200, "x", "y"))
	g.Observe(deleted("b", 3, 100, "x"))
	g.Observe(deleted("plain", 4, 300))
	expect("three deletions",
		ownership.Deletion{Kind: widget, Objects: 1, Oldest: 300},
		ownership.Deletion{Kind: widget, Finalizer: "x", Objects: 2, Oldest: 100},
		ownership.Deletion{Kind: widget, Finalizer: "y", Objects: 1, Oldest: 200})
	if o, _ := g.Object("uid-b"); o.Due != 100 {
		t.Errorf("it is due at %d", o.Due)
	}

	g.Observe(deleted("a", 5, 200, "y"))    // x was removed
	g.Forget("uid-b", "6")                  // and with its last finalizer, an object
	g.Observe(deleted("plain", 7, 250))     // with a shorter grace period
	g.Observe(deleted("plain", 8, 250))     // nothing new
	g.Replace(widget, []ownership.Object{}) // all are gone, unseen
	expect("all are gone",
		ownership.Deletion{Kind: widget, Gone: 1},
		ownership.Deletion{Kind: widget, Finalizer: "x", Gone: 2},
		ownership.Deletion{Kind: widget, Finalizer: "y", Gone: 1})
}

// The number of pairs of kind and finalizer that are counted separately is bounded.
func TestDeletionsAreBounded(t *testing.T) {
	g := ownership.New()
	const many = 1500
	for n := range many {
		g.Observe(deleted(fmt.Sprint(n), 1, int64(10+n), fmt.Sprintf("example.com/f%d", n)))
	}
	objects, others := 0, 0
	for _, d := range deletionsOf(g) {
		objects += d.Objects
		if d.Finalizer == ownership.OtherFinalizers && d.Kind == (ownership.Kind{}) {
			others = d.Objects
		}
	}
	if got := len(deletionsOf(g)); got != 1001 || objects != many || others != 500 {
		t.Errorf("%d deletions of %d objects, %d of others", got, objects, others)
	}
	for n := range many {
		g.Forget(ownership.UID(fmt.Sprintf("uid-%d", n)), "2")
	}
	gone := uint64(0)
	for _, d := range deletionsOf(g) {
		gone += d.Gone
		if d.Objects != 0 {
			t.Errorf("still there: %+v", d)
		}
	}
	if gone != many {
		t.Errorf("%d are gone, want %d", gone, many)
	}
}

// deletionsOf returns the counts of a graph.
func deletionsOf(g *ownership.Graph) []ownership.Deletion {
	var d ownership.Deletions
	ownership.Survey(viewOf(g), func(g *ownership.Graph, from ownership.Cursor) ownership.Cursor { return d.Add(g, from) })
	return d.Sorted()
}
