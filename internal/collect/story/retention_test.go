package story

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

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

// Stories beyond the limits are forgotten, single objects and the oldest first, but never active stories.
func TestOldestAndSingleStoriesAreForgottenFirst(t *testing.T) {
	b := NewBook()
	b.limits = limits{stories: 4, singles: 2, objects: 1000, bytes: 1 << 20}
	now := start
	b.Seen(new(objectOf([]string{"Widget.x/shop/open", "finalizer=x/hold"})), "", now)
	for n := range 10 {
		now = now.Add(2 * time.Second)
		b.Gone(new(objectOf([]string{fmt.Sprintf("Pod/shop/single-%d", n)})), "", now)
		b.Seen(new(objectOf([]string{fmt.Sprintf("Job.batch/shop/job-%d", n)})), "", now)
		b.Gone(new(objectOf([]string{fmt.Sprintf("Pod/shop/pod-%d", n), fmt.Sprintf("owner=job-%d", n)})), "", now)
		b.Gone(new(objectOf([]string{fmt.Sprintf("Job.batch/shop/job-%d", n)})), "", now)
	}
	var ids []string
	for _, s := range b.List(all, now.Add(time.Minute)) {
		ids = append(ids, string(s.ID))
	}
	slices.Sort(ids)
	if got := strings.Join(ids, " "); !strings.Contains(got, "open") || !strings.Contains(got, "job-9") || strings.Contains(got, "job-1 ") || len(ids) > 6 {
		t.Errorf("kept: %s", got)
	}
	if len(b.membership.members) > 12 {
		t.Errorf("%d objects are remembered", len(b.membership.members))
	}
	_, removed, _ := b.Since(1, all, now)
	if len(removed) == 0 {
		t.Error("nobody is told that stories are forgotten")
	}
}

// The texts of objects in stories are bounded in bytes; the other objects are counted.
func TestStoriesAreBoundedInBytes(t *testing.T) {
	b := NewBook()
	b.limits.bytes = 1 << 20
	now := time.Unix(1_700_000_000, 0)
	long := strings.Repeat("x", 1024)
	var owners []ownership.Reference
	for n := range 300 {
		owners = append(owners, ownership.Reference{APIVersion: "v1", Kind: "Pod", Name: "p", UID: ownership.UID(fmt.Sprint("owner-", n))})
	}
	root := ownership.Object{UID: "root", Kind: ownership.Kind{Kind: "Namespace"}, Name: "space", Phase: ownership.Terminating}
	b.Seen(&root, "", now)
	for n := range 2000 {
		o := ownership.Object{
			UID: ownership.UID(fmt.Sprint(n)), Kind: ownership.Kind{Kind: "Pod"}, Namespace: "space", Name: fmt.Sprint(n, long),
			Phase: ownership.Terminating, Finalizers: []string{long}, Owners: owners,
		}
		b.Seen(&o, "", now)
	}
	s := b.shelf.byID["root"]
	if b.usage.bytes > 1<<20+4096 || s.size() != 2001 || s.further.all == 0 {
		t.Errorf("%d bytes, %d entries and %d beyond", b.usage.bytes, len(s.entries), s.further.all)
	}
	sum := 0
	for _, e := range s.entries {
		if len(e.owners) > mostOwners {
			t.Fatalf("%d owners of %.10s", len(e.owners), e.Name)
		}
		sum += e.bytes
	}
	if sum != b.usage.bytes {
		t.Errorf("%d bytes are counted, there are %d", b.usage.bytes, sum)
	}
	b.drop(0)
	if b.usage.bytes != 0 {
		t.Errorf("%d bytes are left without a story", b.usage.bytes)
	}
	for n := range 3 {
		b.Requested(Request{Key: strings.Repeat("k", 1<<20), UID: ownership.UID(fmt.Sprint(n)), By: By{User: strings.Repeat("u", 1<<20), Agent: strings.Repeat("a", 1<<20)}})
	}
	for _, r := range b.requests.recent {
		if n := len(r.Key) + len(r.By.User) + len(r.By.Agent); n > 1024 {
			t.Errorf("a request of %d bytes is kept", n)
		}
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
