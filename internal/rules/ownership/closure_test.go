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

// R32: the contents of a namespace, and the instances of a definition, go with it, also where an owner takes it along.
func TestR32_ContentsGoWithDependents(t *testing.T) {
	g := newGraph(t)
	space, definition, widget := ownership.Kind{Kind: "Namespace"}, ownership.Kind{Kind: "Definition"}, ownership.Kind{Group: "example.com", Kind: "Widget"}
	for _, kind := range []ownership.Kind{space, definition, widget} {
		g.SetScope(kind, ownership.Cluster)
	}
	owned := func(uid ownership.UID, kind ownership.Kind, owners ...ownership.UID) ownership.Object {
		o := ownership.Object{UID: uid, Kind: kind, Name: string(uid), ResourceVersion: "1"}
		for _, owner := range owners {
			o.Owners = append(o.Owners, ownership.Reference{APIVersion: "v1", Kind: "Node", Name: string(owner), UID: owner})
		}
		return o
	}
	inside := func(namespace string, o ownership.Object) ownership.Object {
		o.Namespace = namespace
		return o
	}
	for _, o := range []ownership.Object{
		owned("tenant", node), owned("team", space, "tenant"), owned("crd", definition, "tenant"), owned("other", space),
		inside("team", object("a", 1)), inside("team", object("b", 2, "a")), inside("other", object("c", 3)),
		owned("w1", widget), owned("w2", widget), owned("below", space, "w2"), inside("below", object("d", 4)),
	} {
		if len(o.Owners) > 0 && o.UID == "below" {
			o.Owners[0].APIVersion, o.Owners[0].Kind = "example.com/v1", "Widget"
		}
		g.Observe(o)
	}
	contents := map[ownership.Kind]func(string) (string, ownership.Kind){
		space:      func(name string) (string, ownership.Kind) { return name, ownership.Kind{} },
		definition: func(string) (string, ownership.Kind) { return "", widget },
	}
	for name, test := range map[string]struct {
		roots ownership.Roots
		want  []ownership.UID
	}{
		"the owner of containers":   {ownership.Roots{UIDs: []ownership.UID{"tenant"}}, []ownership.UID{"a", "b", "below", "crd", "d", "team", "tenant", "w1", "w2"}},
		"without its dependents":    {ownership.Roots{UIDs: []ownership.UID{"tenant"}, Orphans: true}, []ownership.UID{"tenant"}},
		"a namespace":               {ownership.Roots{UIDs: []ownership.UID{"team"}}, []ownership.UID{"a", "b", "team"}},
		"a namespace, with orphans": {ownership.Roots{UIDs: []ownership.UID{"team"}, Orphans: true}, []ownership.UID{"a", "b", "team"}},
		"a definition":              {ownership.Roots{UIDs: []ownership.UID{"crd"}}, []ownership.UID{"below", "crd", "d", "w1", "w2"}},
	} {
		test.roots.Contents = contents
		if diff := cmp.Diff(test.want, closureOf(g, test.roots)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// R32: what a collector deletes goes together with all that has lost the same owner, as the references name it (R5): an object
// of another namespace with the UID of that owner keeps nothing.
func TestR32_WhatHasLostTheSameOwnerGoesTogether(t *testing.T) {
	g := newGraph(t)
	lost := func(uid ownership.UID, owners ...ownership.UID) ownership.Object {
		o := object(uid, 1, owners...)
		o.Namespace = "b"
		return o
	}
	g.Observe(object("owner", 1)) // of the namespace default
	g.Observe(object("kept", 2, "owner"))
	g.Observe(lost("there", "a stranger"))
	g.Observe(lost("one", "owner"))
	g.Observe(lost("two", "owner"))
	g.Observe(lost("three", "owner", "solid"))
	g.Observe(lost("solid"))
	for uid, want := range map[ownership.UID][]ownership.UID{"one": {"one", "two"}, "there": {"there"}, "solid": nil, "kept": nil, "unknown": nil} {
		if diff := cmp.Diff(want, closureOf(g, ownership.Roots{Beside: uid})); diff != "" {
			t.Errorf("beside %s (-want +got):\n%s", uid, diff)
		}
	}
}
