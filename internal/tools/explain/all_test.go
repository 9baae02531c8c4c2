package explain_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/coppice-dev/coppice/internal/tools/explain"
)

// chain returns objects in foreground deletion that wait one for the next, and the last one for a controller.
func chain(n int) string {
	var lines strings.Builder
	for i := range n {
		fmt.Fprintf(&lines, "ConfigMap shop/c%d deleted=5h finalizers=foregroundDeletion owner=v1:ConfigMap:c%d:blocking\n", i+1, i)
	}
	fmt.Fprintf(&lines, "ConfigMap shop/c0 deleted=5h finalizers=foregroundDeletion\n")
	fmt.Fprintf(&lines, "ConfigMap shop/end deleted=5h finalizers=example.com/the-end owner=v1:ConfigMap:c%d:blocking\n", n)
	return lines.String()
}

// wide returns a namespace whose contents each wait for a controller of their own.
func wide(n int) string {
	lines := "Namespace shop deleted=5h spec=kubernetes\n"
	for i := range n {
		lines += fmt.Sprintf("ConfigMap shop/w%d deleted=4h finalizers=example.com/f%d\n", i, i)
	}
	return lines
}

// ring returns pods and claims that wait in turn for each other: a pod for the claims that it owns, and a claim for the
// pod that uses it.
func ring(n int) string {
	var lines strings.Builder
	for i := range n {
		fmt.Fprintf(&lines, "Pod shop/p%d deleted=5h finalizers=foregroundDeletion node=n1 claim=v%d\n", i, (i+1)%n)
		fmt.Fprintf(&lines, "PersistentVolumeClaim shop/v%d deleted=5h finalizers=kubernetes.io/pvc-protection owner=v1:Pod:p%d:blocking\n", i, i)
	}
	return lines.String()
}

// circle returns objects in foreground deletion that block each other in turn: the collector breaks such a circle.
func circle(n int) string {
	var lines strings.Builder
	for i := range n {
		fmt.Fprintf(&lines, "ConfigMap shop/o%d deleted=5h finalizers=foregroundDeletion owner=v1:ConfigMap:o%d:blocking\n", i, (i+1)%n)
	}
	return lines.String()
}

// All explains each object once, however many wait for it: objects that wait one for the next, that wait together, or
// for each other.
func TestAllIsLinearInChains(t *testing.T) {
	for name, test := range map[string]struct {
		lines  func(n int) string
		groups func(n int) int
	}{
		"chain":  {chain, func(int) int { return 1 }},
		"wide":   {wide, func(n int) int { return n }},
		"ring":   {ring, func(int) int { return 1 }},
		"circle": {circle, func(int) int { return 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			steps := map[int]int{}
			for _, n := range []int{500, 2000} {
				e := newCluster(t).lines(test.lines(n)).explainer()
				if groups := e.All(); len(groups) != test.groups(n) {
					t.Errorf("%d groups of %d objects, want %d", len(groups), n, test.groups(n))
				}
				steps[n] = e.AllSteps()
			}
			if steps[2000] > 4*steps[500] {
				t.Errorf("%d steps for 500 objects, and %d for 2000", steps[500], steps[2000])
			}
		})
	}
}

// An explanation shows some of its waits; a summary of all deletions has the leaves of all of them.
func TestSummariesHaveAllLeaves(t *testing.T) {
	lines := "Namespace shop deleted=5h spec=kubernetes\n" +
		"ConfigMap shop/owner deleted=5h finalizers=foregroundDeletion\n"
	for n := range 60 {
		lines += fmt.Sprintf("ConfigMap shop/c%d deleted=4h finalizers=example.com/f%d,example.com/g%d owner=v1:ConfigMap:owner:blocking\n", n, n, n)
	}
	groups := newCluster(t).lines(lines).explainer().All()
	if len(groups) != 120 {
		t.Errorf("%d groups, want 120", len(groups))
	}
	for _, g := range groups {
		number := g.Leaf.Finalizer[len("example.com/f"):]
		if got, want := fmt.Sprint(g.Objects), "[ConfigMap shop/owner Namespace shop ConfigMap shop/c"+number+"]"; got != want {
			t.Errorf("%s wait for %s, want %s", got, g.Leaf.Finalizer, want)
		}
	}
}

// Objects that wait for each other have one leaf together, at which whatever waits for one of them ends, too.
func TestObjectsThatWaitForEachOtherAreOneGroup(t *testing.T) {
	lines := "ConfigMap shop/above deleted=6h finalizers=foregroundDeletion\n" +
		strings.Replace(ring(3), "claim=v1", "claim=v1 owner=v1:ConfigMap:above:blocking", 1)
	groups := newCluster(t).lines(lines).explainer().All()
	if len(groups) != 1 || groups[0].Leaf.On != explain.OnCycle || len(groups[0].Objects) != 7 {
		t.Fatalf("%+v", groups)
	}
	contains(t, explain.TextOf(groups, now), "PersistentVolumeClaim shop/v0 and 5 more objects wait for each other", "7 objects: ConfigMap shop/above")
}

// Contents that have become fewer settle the waits below the namespace, not the same ones elsewhere.
func TestAllSettlesWhatBecomesLess(t *testing.T) {
	const lines = `
		Namespace shop deleted=5h spec=kubernetes
		ConfigMap shop/a deleted=5h finalizers=foregroundDeletion`
	w, before := newCluster(t).lines(lines), newCluster(t).lines(lines+`
		ConfigMap shop/b`)
	w.inventory.Index()
	e := explain.New(explain.Input{Inventory: &w.inventory, Before: &before.inventory, Facts: w.facts(), Now: now})
	var got []string
	for _, g := range e.All() {
		got = append(got, fmt.Sprint(g.Leaf.State, g.Objects))
	}
	if diff := cmp.Diff([]string{"Unknown[ConfigMap shop/a]", "Slow[Namespace shop]"}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// All groups objects as explaining each on its own does.
func TestAllIsAsOneByOne(t *testing.T) {
	check := func(t interface{ Errorf(string, ...any) }, lines string) {
		e := newCluster(nil).lines(lines).explainer()
		if diff := cmp.Diff(e.OneByOne(), explain.ByReason(e.All()), cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(explain.Wait{})); diff != "" {
			t.Errorf("(-one by one +all)\n%s\n%s", diff, lines)
		}
	}
	for _, lines := range []string{chain(40), wide(40), ring(20), circle(20), wide(20) + chain(20), ring(5) + chain(3) + wide(12)} {
		check(t, lines)
	}
	rapid.Check(t, func(t *rapid.T) { check(t, randomCluster(t)) })
}

// randomCluster returns objects that wait for each other at random, many of them in cycles.
func randomCluster(t *rapid.T) string {
	var lines strings.Builder
	count := rapid.IntRange(1, 12).Draw(t, "objects")
	any := func() int { return rapid.IntRange(0, count-1).Draw(t, "other") }
	some := func() []struct{} { return make([]struct{}, rapid.IntRange(0, 3).Draw(t, "others")) }
	for n := range count {
		age := rapid.IntRange(1, 9).Draw(t, "age")
		finalizers := rapid.SampledFrom([]string{"foregroundDeletion", "foregroundDeletion,example.com/a", "example.com/b", "example.com/a,example.com/b", "orphan"})
		owners := func() (text string) {
			for range some() {
				text += fmt.Sprintf(" owner=v1:%s:%d:blocking", rapid.SampledFrom([]string{"ConfigMap", "Pod"}).Draw(t, "owner"), any())
			}
			return text
		}
		fmt.Fprintf(&lines, "ConfigMap shop/%d deleted=%dh finalizers=%s%s\n", n, age, finalizers.Draw(t, "finalizers"), owners())
		fmt.Fprintf(&lines, "Pod shop/%d deleted=%dh finalizers=%s%s", n, age, finalizers.Draw(t, "finalizers"), owners())
		for range some() {
			fmt.Fprintf(&lines, " node=n1 claim=%d", any())
		}
		fmt.Fprintf(&lines, "\nPersistentVolumeClaim shop/%d deleted=%dh finalizers=kubernetes.io/pvc-protection%s\n", n, age, owners())
	}
	if rapid.Bool().Draw(t, "namespace") {
		lines.WriteString("Namespace shop deleted=5h spec=kubernetes,example.com/a\n")
	}
	return lines.String()
}

// A summary of a namespace has the objects in it and the namespace itself, with causes elsewhere.
func TestSummaryOfNamespace(t *testing.T) {
	lines := "CustomResourceDefinition.apiextensions.k8s.io widgets.acme.io deleted=1h finalizers=customresourcecleanup.apiextensions.k8s.io\n" +
		"Namespace other deleted=1h spec=kubernetes\nConfigMap other/c deleted=1h finalizers=example.com/there\n" + wide(2)
	found := map[string]bool{}
	for _, g := range newCluster(t).lines(lines).explainer().AllIn("shop") {
		for _, o := range g.Objects {
			found[o.String()] = true
		}
	}
	if diff := cmp.Diff(map[string]bool{"Namespace shop": true, "ConfigMap shop/w0": true, "ConfigMap shop/w1": true}, found); diff != "" {
		t.Errorf("objects of the summary (-want +got):\n%s", diff)
	}
}
