package ownership

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/validate/content"
)

func long(n int) string { return fmt.Sprint(n, "-", strings.Repeat("x", 100_000)) }

// oversize returns references each of which has one long text.
func oversize(n int) []Reference {
	proper := Reference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "u", Controller: True, BlockOwnerDeletion: False}
	all := []Reference{proper, proper, proper, proper, proper, proper}
	all[0].UID = UID(long(n))
	all[1].Name = long(n)
	all[2].Kind = long(n)
	all[3].APIVersion = long(n) + "/v1"
	all[4].APIVersion = "apps/" + long(n)
	all[5].APIVersion = long(n)
	return all
}

// R1: references with different texts stay different when digests stand for them, the same stay the same, and a
// digest of a digest is the same digest.
func TestR1_BoundedReferencesStayDistinct(t *testing.T) {
	seen := map[Reference]bool{}
	for n := range 3 {
		for _, r := range oversize(n) {
			b := r.Bounded()
			if seen[b] {
				t.Errorf("%.80q appears twice", b)
			}
			seen[b] = true
			size := len(b.APIVersion) + len(b.Kind) + len(b.Name) + len(b.UID)
			if size > 1024 || b.IsExact() || b != r.Bounded() || b != b.Bounded() {
				t.Errorf("%d bytes, exact: %t, %+v", size, b.IsExact(), b)
			}
			if b.Controller != r.Controller || b.BlockOwnerDeletion != r.BlockOwnerDeletion {
				t.Errorf("flags of %+v", b)
			}
		}
	}
	if r := (Reference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: strings.Repeat("n", MaxName), UID: UID(strings.Repeat("u", maxUID))}); r != r.Bounded() || !r.IsExact() {
		t.Error("a reference within the bounds has changed")
	}
}

// R1: the group of a reference stays apart from the version, and no long group is taken for the core group.
func TestR1_BoundedGroupIsNoOtherGroup(t *testing.T) {
	for n, want := range map[int]bool{2: true, 3: false, 4: true, 5: false} {
		r := oversize(1)[n]
		b := r.Bounded()
		if (b.OwnerKind().Group == "apps") != want || b.OwnerKind().Group == "" && r.OwnerKind().Group != "" {
			t.Errorf("%.30s/%.30s: group %q", r.APIVersion, r.Kind, b.OwnerKind().Group)
		}
	}
}

// R3: an owner with a long UID is present when it is observed, and absent after its DELETED event; a dependent
// that names another long UID is not concerned.
func TestR3_LongUIDsAreIdentities(t *testing.T) {
	g := New()
	set := Kind{Group: "apps", Kind: "ReplicaSet"}
	g.SetScope(set, Namespaced)
	g.SetScope(Kind{Kind: "Pod"}, Namespaced)
	owner := Bounded(Object{UID: UID(long(1)), Kind: set, Namespace: "a", Name: "web", ResourceVersion: "5"})
	g.Observe(owner)
	for n := range 2 {
		g.Observe(Bounded(Object{
			UID: UID(fmt.Sprint("pod-", n)), Kind: Kind{Kind: "Pod"}, Namespace: "a", Name: fmt.Sprint("pod-", n), ResourceVersion: "6",
			Owners: []Reference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: UID(long(n))}},
		}))
	}
	presences := func() (all []Presence) {
		for n := range 2 {
			all = append(all, g.Owners(UID(fmt.Sprint("pod-", n)))[0].Presence)
		}
		return all
	}
	if got := presences(); !slices.Equal(got, []Presence{Unknown, Present}) {
		t.Errorf("before the deletion: %v", got)
	}
	if uids := g.Forget(owner.UID, "7"); !slices.Equal(uids, []UID{"pod-1"}) {
		t.Errorf("reconsidered %v", uids)
	}
	if got := presences(); !slices.Equal(got, []Presence{Unknown, Absent}) {
		t.Errorf("after the deletion: %v", got)
	}
}

// R2: no object has the name of such an owner. In the path of a request, it would be an object of another namespace, or no
// object at all: the claim is parked, and a write of the reference needs the server's text.
func TestR2_OwnerWithImpossibleNameIsParked(t *testing.T) {
	for _, name := range []string{"..", ".", "../../b/configmaps/x", "web:8080/proxy/x", "a%2fb", "/"} {
		if len(content.IsPathSegmentName(name)) == 0 {
			t.Errorf("%s: a name for upstream", name)
		}
		g := New()
		g.SetScope(Kind{Kind: "ConfigMap"}, Namespaced)
		reference := Reference{APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: "u", BlockOwnerDeletion: True}
		g.Observe(Bounded(Object{UID: "p", Kind: Kind{Kind: "Pod"}, Namespace: "a", Name: "p", ResourceVersion: "1", Owners: []Reference{reference}}))
		owner := g.Owners("p")[0]
		if owner.Presence != Unknown || owner.Obstacle != Unmapped || reference.Bounded().IsExact() || reference.Bounded() != reference.Bounded().Bounded() {
			t.Errorf("%s: %v, %v, exact: %t", name, owner.Presence, owner.Obstacle, reference.Bounded().IsExact())
		}
	}
	if r := (Reference{APIVersion: "v1", Kind: "ConfigMap", Name: "system:a..b", UID: "u"}); r != r.Bounded() {
		t.Error("a name that objects may have has changed")
	}
}

// R2: an owner whose name is too long is never read under another name: the claim is parked.
func TestR2_OwnerWithLongNameIsParked(t *testing.T) {
	g := New()
	g.SetScope(Kind{Group: "apps", Kind: "ReplicaSet"}, Namespaced)
	g.Observe(Bounded(Object{UID: "p", Kind: Kind{Kind: "Pod"}, Namespace: "a", Name: "p", ResourceVersion: "1", Owners: oversize(1)[1:2]}))
	owner := g.Owners("p")[0]
	if owner.Presence != Unknown || owner.Obstacle != Unmapped {
		t.Errorf("%v, %v", owner.Presence, owner.Obstacle)
	}
	g.Observe(Object{UID: "u", Kind: Kind{Group: "apps", Kind: "ReplicaSet"}, Namespace: "a", Name: "other", ResourceVersion: "2"})
	g.Forget("u", "3")
	if owner := g.Owners("p")[0]; owner.Presence != Absent {
		t.Errorf("%v after the DELETED event of the UID", owner.Presence)
	}
}

// The first finalizers are kept, in order, and the collector's finalizers at any place.
func TestFinalizersAreBounded(t *testing.T) {
	var all []string
	for n := range 60_000 {
		all = append(all, fmt.Sprint("example.com/", n))
	}
	all[50_000] = FinalizerForeground
	got := BoundedFinalizers(all)
	size := 0
	for _, f := range got {
		size += len(f)
	}
	kept := len(got) - 2
	want := append(slices.Clone(all[:kept]), FinalizerForeground, fmt.Sprintf("… and %d more", 60_000-kept-1))
	if diff := cmp.Diff(want, got); diff != "" || size > 2*maxFinalizers {
		t.Errorf("%d bytes, -want +got:\n%s", size, diff)
	}
	if again := BoundedFinalizers(got); !slices.Equal(again, got) || !HasMoreFinalizers(got) {
		t.Errorf("bounded twice: %q", again)
	}
	if few := all[:20]; !slices.Equal(BoundedFinalizers(few), few) || HasMoreFinalizers(few) {
		t.Error("twenty finalizers have changed")
	}
}

// An object with 100 kB of owner reference or finalizers costs the graph no more than 4 kB.
func TestLongTextsCostLittle(t *testing.T) {
	const objects = 60
	g := New()
	used := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := used()
	for n := range objects {
		o := Object{UID: UID(fmt.Sprint(n)), Kind: Kind{Kind: "Pod"}, Namespace: "a", Name: fmt.Sprint(n), ResourceVersion: "1"}
		o.Owners = oversize(n)[n%6 : n%6+1]
		if n%2 == 0 {
			for f := range 10_000 {
				o.Finalizers = append(o.Finalizers, fmt.Sprintf("example.com/%d-%d", n, f))
			}
		}
		g.Observe(Bounded(o))
	}
	if got := int64(used()) - int64(before); got > objects*4096+256<<10 { // the graph's own pieces take some 100 kB
		t.Errorf("%d objects cost %d bytes", objects, got)
	}
	runtime.KeepAlive(g)
}

func TestExcerptSaysTheLength(t *testing.T) {
	for text, want := range map[string]string{"": "", "short": "short", "0123456789": "0123456789", "0123456789a": "0123456789… (11 bytes)", "012345678äb": "012345678… (12 bytes)"} {
		if got := Excerpt(text, 10); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
