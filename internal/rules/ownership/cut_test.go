package ownership_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// newCuttingGraph returns a graph that keeps one reference of an object with more than three.
func newCuttingGraph(t *testing.T) *ownership.Graph {
	t.Helper()
	g := ownership.NewKeeping(3)
	g.SetScope(configMap, ownership.Namespaced)
	g.SetScope(node, ownership.Cluster)
	t.Cleanup(func() { check(t, g) })
	return g
}

func uids(prefix string, n int) (all []ownership.UID) {
	for i := range n {
		all = append(all, ownership.UID(fmt.Sprint(prefix, i)))
	}
	return all
}

func TestCutObjectSaysHowManyReferencesItLacks(t *testing.T) {
	g := newCuttingGraph(t)
	for n, want := range map[int]int{0: 0, 3: 0, 4: 3, 8: 7} {
		uid := ownership.UID(fmt.Sprint("object", n))
		g.Observe(object(uid, 1, uids("owner", n)...))
		if o, _ := g.Object(uid); o.MoreOwners != want || len(o.Owners) != n-want {
			t.Errorf("of %d references %d are kept and %d are not, want %d", n, len(o.Owners), o.MoreOwners, want)
		}
	}
	g.Observe(object("object8", 2, "owner0"))
	if o, _ := g.Object("object8"); o.MoreOwners != 0 || len(o.Owners) != 1 {
		t.Errorf("the object has become small, and is %+v", o)
	}
}

// Whatever owner changes, a cut object is reconsidered, whether the graph keeps the reference or not.
func TestChangeOfAnyOwnerConcernsACutObject(t *testing.T) {
	owners := uids("owner", 8)
	for _, owner := range owners {
		g := newCuttingGraph(t)
		for _, uid := range owners {
			g.Observe(object(uid, 1))
		}
		returns(t, g.Observe(object("cut", 1, owners...))) // all are solid
		returns(t, g.Observe(object("cut", 2, owners...)))
		if got := g.Observe(foreground(owner, 2)); !slices.Contains(got, "cut") {
			t.Errorf("%s is in foreground deletion, and %v are reconsidered", owner, got)
		}
		if got := g.MayDepend(owner); !slices.Equal(got, []ownership.UID{"cut"}) {
			t.Errorf("%v may depend on %s", got, owner)
		}
		if got := g.Forget(owner, "3"); !slices.Contains(got, "cut") {
			t.Errorf("%s is gone, and %v are reconsidered", owner, got)
		}
	}
}

// An owner in deletion is reconsidered when a cut object changes or goes, whether the graph keeps the reference or not.
func TestChangeOfACutObjectConcernsItsWaitingOwners(t *testing.T) {
	owners := uids("owner", 8)
	for _, owner := range owners {
		g := newCuttingGraph(t)
		g.Observe(object("cut", 1, owners...))
		g.Observe(foreground(owner, 1))
		if got := g.Observe(object("cut", 2, "other")); !slices.Contains(got, owner) {
			t.Errorf("the references to %s are gone, and %v are reconsidered", owner, got)
		}
		g.Observe(object("cut", 3, owners...))
		if got := g.Forget("cut", "4"); !slices.Contains(got, owner) {
			t.Errorf("the dependent of %s is gone, and %v are reconsidered", owner, got)
		}
		if got := g.MayDepend(owner); got != nil {
			t.Errorf("%v may depend on %s", got, owner)
		}
	}
}

// A kind that is served or not, and a new epoch, concern all cut objects: the kinds of their owners are not known.
func TestScopesAndEpochsConcernCutObjects(t *testing.T) {
	g := newCuttingGraph(t)
	g.Observe(object("cut", 1, uids("owner", 8)...))
	returns(t, g.SetScope(ownership.Kind{Kind: "Widget"}, ownership.Namespaced), "cut")
	returns(t, g.NewEpoch(), "cut")
}

// The graph keeps the references that close a cycle of foreground deletions, among many that do not.
func TestCycleThroughCutObjects(t *testing.T) {
	for _, closesLast := range []bool{false, true} {
		g := newCuttingGraph(t)
		others := uids("other", 8)
		for _, uid := range others {
			g.Observe(foreground(uid, 1))
		}
		// a and c are cut; a → b → c → a.
		a, c := foreground("a", 1, append(others, "b")...), foreground("c", 1, append(others, "a")...)
		objects := []ownership.Object{a, c, foreground("b", 1, "c")}
		if closesLast {
			slices.Reverse(objects)
		}
		queue := map[ownership.UID]bool{}
		for _, o := range objects {
			for _, uid := range g.Observe(o) {
				queue[uid] = true
			}
		}
		for range 10 { // as the collector does, which reads cut objects live
			for _, o := range []ownership.Object{a, c} {
				if queue[o.UID] {
					delete(queue, o.UID)
					for _, uid := range g.Recut(o) {
						queue[uid] = true
					}
				}
			}
		}
		if got := g.Cycle("a"); !slices.Equal(got, []ownership.UID{"a", "b", "c"}) {
			t.Errorf("the cycle is %v", got)
		}
		if queue["a"] || queue["c"] {
			t.Errorf("the choice of references does not come to rest")
		}
	}
}

// OwnersOf returns what Owners would if the graph kept all references.
func TestOwnersOfTheWholeList(t *testing.T) {
	cutting, whole := newCuttingGraph(t), newGraph(t)
	o := object("cut", 1, uids("owner", 8)...)
	o.Owners[5].Kind = "Widget"
	o.Owners[6].Kind = "Node"
	for _, g := range []*ownership.Graph{cutting, whole} {
		g.Observe(object("owner1", 1))
		g.Observe(foreground("owner2", 1))
		elsewhere := object("owner3", 1)
		elsewhere.Namespace = "other"
		g.Observe(elsewhere)
		g.Observe(o)
	}
	if got, want := cutting.OwnersOf(o, nil), whole.Owners("cut"); !slices.Equal(got, want) {
		t.Errorf("the owners are\n%+v, want\n%+v", got, want)
	}
	claim := ownership.Claim{Kind: node, Name: "owner6", UID: "owner6"}
	answers := map[ownership.Claim]ownership.Answer{claim: {Presence: ownership.Absent}}
	if got := cutting.OwnersOf(o, answers)[6]; got.Presence != ownership.Absent || got.Evidence.Source != ownership.LiveRead {
		t.Errorf("the answer of a live read does not count: %+v", got)
	}
}
