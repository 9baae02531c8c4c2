package story

import (
	"fmt"
	"testing"
	"time"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// No part of a story is read for a reader who may not see the root: a large story takes no more memory than an absent
// one.
func TestHiddenStoryIsNotRead(t *testing.T) {
	b, now := NewBook(), time.Unix(1_000_000, 0)
	owner := &ownership.Object{UID: "owner", Kind: ownership.Kind{Kind: "ConfigMap"}, Namespace: "shop", Name: "owner", Phase: ownership.Foreground}
	b.Seen(owner, "shop", now)
	for n := range 5000 {
		b.Gone(&ownership.Object{
			UID: ownership.UID(fmt.Sprint(n)), Kind: ownership.Kind{Kind: "Pod"}, Namespace: "shop", Name: fmt.Sprint(n),
			Owners: []ownership.Reference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "owner"}},
		}, "shop", now)
	}
	all, none := func(Ref) bool { return true }, func(Ref) bool { return false }
	if _, objects, _, ok := b.Story("owner", 0, all, now); !ok || len(objects) != 5001 {
		t.Fatalf("the story has %d objects", len(objects))
	}
	absent := testing.AllocsPerRun(20, func() { b.Story("absent", 0, none, now) })
	hidden := testing.AllocsPerRun(20, func() { b.Story("owner", 0, none, now) })
	if hidden > absent {
		t.Errorf("a hidden story takes %v allocations, an absent one %v", hidden, absent)
	}
	if changed, _, at := b.Since(0, none, now); len(changed) != 0 || at != b.Changes() {
		t.Errorf("%d stories are told to a reader who may see none, up to change %d of %d", len(changed), at, b.Changes())
	}
}

// A story of several roots consists, for a reader, of the visible roots; the same holds for its end and its removal.
func TestStoryConsistsOfTheVisibleRoots(t *testing.T) {
	b, now := NewBook(), time.Unix(1_000_000, 0)
	for n, kind := range []string{"Secret", "ConfigMap", "Secret", "ConfigMap"} {
		uid := ownership.UID(fmt.Sprint(kind, n))
		b.Requested(Request{Key: "k", UID: uid, By: By{User: "ann"}})
		o := &ownership.Object{UID: uid, Kind: ownership.Kind{Kind: kind}, Namespace: "shop", Name: string(uid), Phase: ownership.Terminating, Finalizers: []string{"x/y"}}
		b.Seen(o, "shop", now.Add(time.Duration(n)*time.Second))
		if kind == "ConfigMap" {
			b.Gone(o, "shop", now.Add(10*time.Second))
		}
	}
	sees := func(r Ref) bool { return r.Kind == "ConfigMap" }
	later := now.Add(time.Minute)
	list := b.List(sees, later)
	if len(list) != 1 {
		t.Fatalf("%+v", list)
	}
	got := list[0]
	if got.ID != "ConfigMap1" || got.More != 1 || len(got.Roots) != 2 || got.Gone != 2 || got.Waiting != 0 || !got.Done ||
		!got.Ended.Equal(now.Add(10*time.Second)) || !got.Began.Equal(now.Add(time.Second)) || got.WaitsFor != "" {
		t.Errorf("%+v", got)
	}
	if all := b.List(nil, later)[0]; all.ID != "Secret0" || all.Done || all.More != 3 {
		t.Errorf("for those who see everything: %+v", all)
	}
	if _, objects, _, found := b.Story("ConfigMap1", 0, sees, later); !found || len(objects) != 2 {
		t.Errorf("%t: %v", found, objects)
	}
	for _, id := range []ownership.UID{"Secret0", "ConfigMap3"} {
		if _, _, _, found := b.Story(id, 0, sees, later); found {
			t.Errorf("the story is found by %s", id)
		}
	}
	before := b.Changes()
	b.drop(0)
	for _, reader := range []struct {
		sees Sees
		want string
	}{{sees, "[ConfigMap1]"}, {nil, "[Secret0]"}, {func(Ref) bool { return false }, "[]"}} {
		if _, removed, _ := b.Since(before, reader.sees, later); fmt.Sprint(removed) != reader.want {
			t.Errorf("removed are %v, want %s", removed, reader.want)
		}
	}
}
