package ownership_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/testing/histories"
)

func closureOf(g *ownership.Graph, roots ownership.Roots) []ownership.UID {
	return slices.Sorted(maps.Keys(maps.Collect(g.Closure(roots))))
}

// R32: what a deletion would delete.
func TestR32_ClosureOfADeletion(t *testing.T) {
	g := newGraph(t)
	g.Observe(object("root", 1))
	g.Observe(object("child", 2, "root"))
	g.Observe(object("grandchild", 3, "child"))
	g.Observe(object("shared", 4, "root", "other"))
	g.Observe(object("of both", 5, "root", "child"))
	g.Observe(object("other", 6))
	g.Observe(object("half an orphan", 7, "root", "never seen"))
	g.Observe(foreground("going", 8, "root"))
	g.Observe(object("below what is going", 9, "going"))
	g.Observe(object("of somebody gone", 10, "never seen"))
	g.Observe(ownership.Object{UID: "machine", Kind: node, Name: "machine", ResourceVersion: "11"})
	wrong := object("with a wrong name", 12, "root")
	wrong.Owners[0].Name = "another"
	g.Observe(wrong)

	for name, test := range map[string]struct {
		roots ownership.Roots
		want  []ownership.UID
	}{
		"nothing":        {ownership.Roots{}, nil},
		"a leaf":         {ownership.Roots{UIDs: []ownership.UID{"grandchild"}}, []ownership.UID{"grandchild"}},
		"a tree":         {ownership.Roots{UIDs: []ownership.UID{"root"}}, []ownership.UID{"child", "grandchild", "half an orphan", "of both", "root"}},
		"both owners":    {ownership.Roots{UIDs: []ownership.UID{"root", "other"}}, []ownership.UID{"child", "grandchild", "half an orphan", "of both", "other", "root", "shared"}},
		"with orphans":   {ownership.Roots{UIDs: []ownership.UID{"root"}, Orphans: true}, []ownership.UID{"root"}},
		"an absent one":  {ownership.Roots{UIDs: []ownership.UID{"never seen"}}, []ownership.UID{"of somebody gone"}},
		"one that goes":  {ownership.Roots{UIDs: []ownership.UID{"going"}}, []ownership.UID{"below what is going"}},
		"a kind":         {ownership.Roots{Kind: node}, []ownership.UID{"machine"}},
		"of both":        {ownership.Roots{Namespace: "default", Kind: node}, nil},
		"no such thing":  {ownership.Roots{Namespace: "elsewhere", Kind: ownership.Kind{Kind: "Unicorn"}}, nil},
		"a namespace":    {ownership.Roots{Namespace: "default"}, slices.Sorted(slices.Values([]ownership.UID{"root", "child", "grandchild", "shared", "of both", "other", "half an orphan", "below what is going", "of somebody gone", "with a wrong name"}))},
		"no UID we know": {ownership.Roots{UIDs: []ownership.UID{"a stranger"}}, nil},
	} {
		if diff := cmp.Diff(test.want, closureOf(g, test.roots)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for uid := range g.Closure(ownership.Roots{UIDs: []ownership.UID{"root"}}) {
		if uid != "root" {
			t.Errorf("the first is %s", uid)
		}
		break
	}
}

// R32: in random graphs, the closure is the smallest set with the roots and everything that no owner outside of it keeps.
func TestR32_ClosureIsTheSmallest(t *testing.T) {
	histories.Check(t, 200, 1, func(t *rapid.T) {
		g := ownership.New()
		g.SetScope(configMap, ownership.Namespaced)
		objects := map[ownership.UID]ownership.Object{}
		count := histories.IntN(t, 14) + 1
		uid := func(n int) ownership.UID { return ownership.UID(fmt.Sprint("o", n)) }
		for n := range count {
			var owners []ownership.UID
			for range histories.IntN(t, 3) {
				owners = append(owners, uid(histories.IntN(t, count+2))) // two do not exist
			}
			o := object(uid(n), n+1, owners...)
			if histories.Chance(t, 10) {
				o.Phase, o.Finalizers = ownership.Terminating, []string{"example.com/x"}
			}
			objects[o.UID] = o
			g.Observe(o)
		}
		root := uid(histories.IntN(t, count+2))
		if diff := cmp.Diff(smallest(objects, root), closureOf(g, ownership.Roots{UIDs: []ownership.UID{root}})); diff != "" {
			t.Fatalf("closure of %s in %+v (-want +got):\n%s", root, objects, diff)
		}
	})
}

// smallest computes a closure by repeating the definition until nothing changes.
func smallest(objects map[ownership.UID]ownership.Object, root ownership.UID) []ownership.UID {
	active := func(uid ownership.UID) bool { o, known := objects[uid]; return known && o.Phase == ownership.Active }
	going := map[ownership.UID]bool{root: true}
	for grew := true; grew; {
		grew = false
		for uid, o := range objects {
			var hasGoing, hasKeeper bool
			for _, r := range o.Owners {
				hasGoing = hasGoing || going[r.UID]
				hasKeeper = hasKeeper || active(r.UID) && !going[r.UID]
			}
			if active(uid) && !going[uid] && hasGoing && !hasKeeper {
				going[uid], grew = true, true
			}
		}
	}
	var all []ownership.UID
	for uid := range going {
		if active(uid) {
			all = append(all, uid)
		}
	}
	slices.Sort(all)
	return all
}
