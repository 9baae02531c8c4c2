package crowd

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func newPopulation(tb testing.TB, objects int) *Population {
	tb.Helper()
	p, err := NewPopulation(objects)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// TestObjectsAreFoundByTheirNames: the encoded metadata of each object name its owner, and lead back to its number.
func TestObjectsAreFoundByTheirNames(t *testing.T) {
	p := newPopulation(t, 20_000)
	e := encoder{population: p}
	uids := map[string]Number{}
	size := 0
	for n := range Number(p.Objects) {
		c, i := p.at(n)
		var meta metav1.ObjectMeta
		encoded := e.meta(c, i, firstRevision)
		size += len(encoded)
		if err := meta.Unmarshal(encoded); err != nil {
			t.Fatalf("%d: %v", n, err)
		}
		if found, ok := p.Find(c.kind, meta.Namespace, meta.Name); !ok || found != n {
			t.Fatalf("Find(%s %s/%s) = %d %t, want %d", c.kind.Kind, meta.Namespace, meta.Name, found, ok, n)
		}
		uids[string(meta.UID)] = n
		if owner, owned := p.Owner(n); owned != (len(meta.OwnerReferences) == 1) || owned && meta.OwnerReferences[0].UID != UID(owner) {
			t.Fatalf("%s %s has the owners %v, want %d %t", c.kind.Kind, meta.Name, meta.OwnerReferences, owner, owned)
		}
	}
	if len(uids) != p.Objects {
		t.Errorf("%d objects have %d UIDs", p.Objects, len(uids))
	}
	if each := size / p.Objects; each < 600 || each > 1000 {
		t.Errorf("the metadata of an object have %d bytes, want 600 to 1000", each)
	}
}

// TestDependentsHaveTheOwner: dependents and owners agree, and share a namespace.
func TestDependentsHaveTheOwner(t *testing.T) {
	p := newPopulation(t, 5000)
	dependents := 0
	for n := range Number(p.Objects) {
		c, i := p.at(n)
		for _, d := range p.Dependents(n) {
			dependents++
			if owner, _ := p.Owner(d); owner != n {
				t.Fatalf("%d is a dependent of %d, and its owner is %d", d, n, owner)
			}
			below, j := p.at(d)
			if got, want := p.namespaceName(below, j), p.namespaceName(c, i); got != want {
				t.Fatalf("%d is in %q, its owner %d in %q", d, got, n, want)
			}
		}
	}
	owned := 0
	for n := range Number(p.Objects) {
		if _, ok := p.Owner(n); ok {
			owned++
		}
	}
	if dependents != owned {
		t.Errorf("%d dependents, %d objects with owners", dependents, owned)
	}
}

// TestNamespacesDivideTheObjects: each object of a kind is in one namespace.
func TestNamespacesDivideTheObjects(t *testing.T) {
	p := newPopulation(t, 5000)
	for _, c := range p.cohorts {
		if !c.kind.Namespaced {
			continue
		}
		next := 0
		for _, namespace := range p.namespaces {
			from, to := p.within(c, namespace)
			if from < to && from != next {
				t.Fatalf("%s: the objects of %s begin at %d, want %d", c.word, namespace, from, next)
			}
			next = max(next, to)
		}
		if next != c.count {
			t.Errorf("%s: %d of %d objects are in a namespace", c.word, next, c.count)
		}
	}
}

// BenchmarkEvent is the cost of an event in the order of a list, without its transport.
func BenchmarkEvent(b *testing.B) {
	const objects = 1_000_000
	p := newPopulation(b, objects)
	v := envelopeOf("meta.k8s.io/v1", "PartialObjectMetadata")
	for _, word := range []string{"web", "web-pod", "settings"} {
		b.Run(word, func(b *testing.B) {
			e := encoder{population: p}
			c := p.words[word]
			var to []byte
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				to = v.appendEvent(to[:0], "ADDED", e.meta(c, i%c.count, firstRevision))
			}
			b.SetBytes(int64(len(to)))
		})
	}
}
