package story

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// Readers are told of the last removed stories, even if one request deleted objects in very many places.
func TestRemovalsAreBoundedInBytes(t *testing.T) {
	var r removals
	long := strings.Repeat("x", 1000)
	for n := range 2 * mostRemovals {
		one := removal{change: uint64(n + 1)}
		for place := range n % 10 {
			one.heads = append(one.heads, head{Ref: Ref{Kind: "Pod", Namespace: fmt.Sprint(place), Name: long, UID: "uid"}})
		}
		r.add(one)
		sum := 0
		for i := range r.all {
			sum += r.all[i].bytes()
		}
		if sum != r.bytes || sum > mostRemovalBytes || len(r.all) > mostRemovals {
			t.Fatalf("%d removals of %d bytes, counted as %d", len(r.all), sum, r.bytes)
		}
	}
	if found := r.since(2*mostRemovals - 1); len(found) != 1 {
		t.Errorf("%d removals are after the last but one", len(found))
	}
}

func TestProtectedObjectsAreBoundedInBytes(t *testing.T) {
	b := NewBook()
	var owners []ownership.Reference
	for n := range mostOwners + 1 {
		owners = append(owners, ownership.Reference{UID: ownership.UID(fmt.Sprint(strings.Repeat("u", 100), n)), BlockOwnerDeletion: ownership.True})
	}
	protect := func(n int) *ownership.Object {
		o := objectOf([]string{fmt.Sprintf("ConfigMap/shop/%d", n), "protected"})
		o.Owners = owners
		return &o
	}
	for n := range mostGuards {
		b.Seen(protect(n), "", start)
	}
	sum := 0
	for _, g := range b.guards.byUID {
		sum += g.bytes()
	}
	if sum != b.guards.bytes || sum > mostGuardBytes || sum < mostGuardBytes*9/10 {
		t.Errorf("%d bytes of protected objects are kept, counted as %d", sum, b.guards.bytes)
	}
	for n := range mostGuards {
		b.Gone(protect(n), "", start)
	}
	if b.HasGuards() || b.guards.bytes != 0 {
		t.Errorf("%d bytes of removed objects are kept", b.guards.bytes)
	}
}

func TestNamesOfKindsAreBounded(t *testing.T) {
	n := names{}
	for i := range 3 * mostNames {
		if got, want := n.of(ownership.Kind{Group: "x", Kind: fmt.Sprint("K", i)}), fmt.Sprint("K", i, ".x"); got != want {
			t.Fatalf("the name is %s, want %s", got, want)
		}
	}
	if len(n) > mostNames {
		t.Errorf("%d names are kept", len(n))
	}
}

// Stories of one object go first; others only to make room.
func TestForgetsStoriesOfOneObjectFirst(t *testing.T) {
	b := NewBook()
	b.limits.singles = 1
	b.Gone(new(objectOf([]string{"Job.batch/shop/job"})), "", start)
	b.Gone(new(objectOf([]string{"Pod/shop/pod", "owner=job"})), "", start)
	for n := range 3 {
		b.Gone(new(objectOf([]string{fmt.Sprintf("Pod/shop/single-%d", n)})), "", start)
	}
	ids := func() string {
		var ids []string
		for _, s := range b.List(nil, start) {
			ids = append(ids, string(s.ID))
		}
		return strings.Join(ids, " ")
	}
	if got, want := ids(), "job single-0 single-1 single-2"; got != want {
		t.Errorf("before any is done the stories are %q, want %q", got, want)
	}
	b.forget(start.Add(2 * settle))
	if got, want := ids(), "job single-2"; got != want {
		t.Errorf("the stories are %q, want %q", got, want)
	}
	b.limits.stories = 1
	b.forget(start.Add(2 * settle))
	if got, want := ids(), "single-2"; got != want {
		t.Errorf("for lack of room the stories are %q, want %q", got, want)
	}
}

// A burst of stories, none of which is done, is forgotten soon after it is.
func TestForgetsABurstOnceItIsDone(t *testing.T) {
	b := NewBook()
	single := func(n int) *ownership.Object { return new(objectOf([]string{fmt.Sprint("Pod/shop/", n)})) }
	for n := range 3000 {
		b.Gone(single(n), "", start)
	}
	for n := range 3000 / 16 {
		b.Gone(single(3000+n), "", start.Add(2*settle))
	}
	if n := len(b.shelf.order); n > b.limits.singles+1 {
		t.Errorf("%d stories are kept", n)
	}
}

// BenchmarkBurst begins stories, none of which is done: the time of each does not depend on their number.
func BenchmarkBurst(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			objects := make([]ownership.Object, n)
			for i := range objects {
				objects[i] = objectOf([]string{fmt.Sprint("Pod/shop/", i)})
			}
			for b.Loop() {
				book := NewBook()
				for i := range objects {
					book.Gone(&objects[i], "", start)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/story")
		})
	}
}
