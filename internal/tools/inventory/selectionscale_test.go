package inventory_test

import (
	"fmt"
	"testing"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/testing/census"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// An owner with very many dependents is selected with all of them, and the lock is released again and again.
func TestSelectionOfAnOwnerWithManyDependents(t *testing.T) {
	g := ownership.New()
	widget := ownership.Kind{Group: "acme.io", Kind: "Widget"}
	g.SetScope(widget, ownership.Namespaced)
	const dependents = 3000
	g.Observe(ownership.Object{UID: "owner", Kind: widget, Namespace: "shop", Name: "owner"})
	for i := range dependents {
		name := fmt.Sprint("d", i)
		g.Observe(ownership.Object{UID: ownership.UID(name), Kind: widget, Namespace: "shop", Name: name, Owners: []ownership.Reference{
			{APIVersion: "acme.io/v1", Kind: "Widget", Name: "owner", UID: "owner"},
		}})
	}
	holds := 0
	s := inventory.SelectConcerned(func(read func(*ownership.Graph)) {
		holds++
		read(g)
	}, nil, []ownership.UID{"owner"})
	if len(s.Members) != dependents+1 || holds < 5 {
		t.Errorf("%d members, in %d holds of the lock", len(s.Members), holds)
	}
}

// BenchmarkSelectConcerned selects what concerns the largest namespace of a cluster with 134 000 objects.
func BenchmarkSelectConcerned(b *testing.B) {
	inv := census.New(1)
	g := ownership.New()
	var largest ownership.UID
	for _, o := range inv.Objects {
		g.Observe(o.Object)
		if o.Kind.Kind == "Namespace" && o.Name == "ns-0" {
			largest = o.UID
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		s := inventory.SelectConcerned(func(read func(*ownership.Graph)) { read(g) }, inv.Resources, []ownership.UID{largest})
		if len(s.Members) < 10_000 {
			b.Fatalf("%d members", len(s.Members))
		}
	}
}
