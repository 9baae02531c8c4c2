package ownership_test

import (
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// An owner has ten thousand dependents, which disappear one by one.
func TestManyDependentsDisappearOneByOne(t *testing.T) {
	const n = 10_000
	g := newGraph(t)
	g.Observe(object("owner", 1))
	uid := func(i int) ownership.UID { return ownership.UID(fmt.Sprintf("%08x-0000-4000-8000-000000000000", i)) }
	for i := range n {
		o := object(uid(i), 1, "owner")
		if i%10 == 0 {
			o.Owners[0].BlockOwnerDeletion = ownership.True
		}
		returns(t, g.Observe(o))
	}
	if got := len(slices.Collect(g.Blocking("owner"))); got != n/10 {
		t.Errorf("%d dependents are blocking, want %d", got, n/10)
	}
	if got := g.Stats(); got.Claims != 1 || got.References != n {
		t.Errorf("the graph holds %+v", got)
	}
	all := g.Observe(foreground("owner", 2))
	if len(all) != n+1 || !slices.IsSorted(all) {
		t.Errorf("%d UIDs to reconsider, want %d, sorted: %t", len(all), n+1, slices.IsSorted(all))
	}
	check(t, g)
	for i := range n {
		returns(t, g.Forget(uid(n-1-i), "2"), "owner")
	}
	if g.HasDependents("owner") || g.Len() != 1 {
		t.Errorf("the graph holds %+v", g.Stats())
	}
}

// One UID, claimed with ten thousand different names.
func TestOneUIDMayHaveManyClaims(t *testing.T) {
	const n = 10_000
	g := newGraph(t)
	uid := func(i int) ownership.UID { return ownership.UID(fmt.Sprint("d", i)) }
	for i := range n {
		o := object(uid(i), 1, "victim")
		o.Owners[0].Name = fmt.Sprint("name", i)
		g.Observe(o)
	}
	if got := g.Stats(); got.Claims != n || got.Presumed != 1 {
		t.Errorf("the graph holds %+v", got)
	}
	for i := range n {
		c := ownership.Claim{Kind: configMap, Namespace: "default", Name: fmt.Sprint("name", i), UID: "victim"}
		if i%1000 == 0 { // each answer looks at all claims on the UID
			returns(t, g.Resolve(c, ownership.Absent, 0), uid(i))
		}
	}
	if len(g.Observe(object("victim", 1))) != n {
		t.Error("not all objects that claim the wrong name are returned")
	}
	check(t, g)
	for i := range n {
		g.Forget(uid((i*7919)%n), "2")
	}
	if got, want := g.Stats(), (ownership.Stats{Objects: 1}); got != want {
		t.Errorf("the graph holds %+v", got)
	}
}

// TestAbsentKnowledgeIsBounded is H8 and H9 with respect to memory: ten thousand false owners are
// dropped together with the object that names them.
func TestAbsentKnowledgeIsBounded(t *testing.T) {
	g := newGraph(t)
	hostile := object("hostile", 1)
	for i := range 10_000 {
		hostile.Owners = append(hostile.Owners, ownership.Reference{
			APIVersion: fmt.Sprintf("group%d/v1", i), Kind: "ConfigMap", Name: fmt.Sprint(i), UID: ownership.UID(fmt.Sprint("fake", i)),
		})
		if i%2 == 0 {
			hostile.Owners[i].APIVersion = "v1"
		}
	}
	g.Observe(hostile)
	for i := range 10_000 {
		g.Resolve(ownership.Claim{Kind: configMap, Namespace: "default", Name: fmt.Sprint(i), UID: ownership.UID(fmt.Sprint("fake", i))}, ownership.Absent, 0)
	}
	if got := g.Stats(); got.Answers != 5000 || got.Presumed != 10_000 {
		t.Errorf("the graph holds %+v", got)
	}
	check(t, g)
	g.Observe(object("hostile", 2))
	if got, want := g.Stats(), (ownership.Stats{Objects: 1}); got != want {
		t.Errorf("the graph holds %+v", got)
	}
}

// A circle of twenty thousand objects, and a chain of as many. The search does not recurse, and its time is not
// quadratic.
func TestLongCycleIsFoundInLinearTime(t *testing.T) {
	const n = 20_000
	uid := func(i int) ownership.UID { return ownership.UID(fmt.Sprintf("%08x-0000-4000-8000-000000000000", i%n)) }
	g := newGraph(t)
	for i := range n - 1 {
		g.Observe(foreground(uid(i), 1, uid(i+1)))
	}
	if got := g.Stats().InCycles; got != 0 {
		t.Errorf("%d objects in cycles before the circle is closed", got)
	}
	if got := len(g.Observe(foreground(uid(n-1), 1, uid(0)))); got != n {
		t.Errorf("the circle is closed, and %d objects are returned, want %d", got, n)
	}
	if got := len(g.Cycle(uid(7))); got != n {
		t.Errorf("the cycle has %d members, want %d", got, n)
	}
	check(t, g)
	if got := len(g.Forget(uid(n/2), "2")); got != n-1 {
		t.Errorf("the circle is open, and %d objects are returned, want %d", got, n-1)
	}
	if got := g.Stats().InCycles; got != 0 {
		t.Errorf("%d objects in cycles after the circle was opened", got)
	}
}

// TestCycleThroughAnotherGroup: the claims of a cycle may be good by a live read.
func TestCycleThroughAnotherGroup(t *testing.T) {
	g := newGraph(t)
	other := ownership.Kind{Group: "other", Kind: "ConfigMap"}
	g.SetScope(other, ownership.Namespaced)
	a, b := foreground("a", 1, "b"), foreground("b", 1, "a")
	a.Owners[0].APIVersion = "other/v1"
	g.Observe(a)
	g.Observe(b)
	claim := ownership.Claim{Kind: other, Namespace: "default", Name: "b", UID: "b"}
	if diff := cmp.Diff([]ownership.Claim{claim}, g.Doubtful("b")); diff != "" {
		t.Errorf("doubtful claims (-want +got):\n%s", diff)
	}
	g.Resolve(claim, ownership.Present, ownership.Foreground)
	if got := g.Cycle("a"); len(got) != 2 {
		t.Errorf("cycle is %v", got)
	}
	returns(t, g.SetScope(other, ownership.ScopeUnknown), "a", "b")
	if got := g.Cycle("a"); got != nil {
		t.Errorf("cycle is %v", got)
	}
	g.SetScope(other, ownership.Namespaced)
	g.Resolve(claim, ownership.Present, ownership.Foreground)
	check(t, g)
	returns(t, g.NewEpoch(), "a", "b")
	if got := g.Cycle("a"); got != nil {
		t.Errorf("cycle is %v", got)
	}
}

// TestUnchangedAllocatesNothing: events that a feed repeats, or that change only the status,
// allocate nothing.
func TestUnchangedAllocatesNothing(t *testing.T) {
	g := newGraph(t)
	owner := object("0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9", 1)
	o := object("0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8fa", 1, owner.UID, owner.UID)
	o.Finalizers = []string{"a", "b"}
	g.Observe(owner)
	g.Observe(o)
	if n := testing.AllocsPerRun(100, func() { g.Observe(o) }); n != 0 {
		t.Errorf("an unchanged observation makes %v allocations", n)
	}
	versions := make([]string, 200)
	for i := range versions {
		versions[i] = strconv.Itoa(i + 2)
	}
	i := 0
	if n := testing.AllocsPerRun(100, func() {
		o.ResourceVersion = versions[i]
		i++
		g.Observe(o)
	}); n != 0 {
		t.Errorf("a new version of a settled object makes %v allocations", n)
	}
}

// An object takes less than bytesOfObject in the graph of a collector, whatever owners it names, including the answers of
// live reads.
func TestBytesOfReferencesAreBounded(t *testing.T) {
	for _, c := range []struct {
		name, format string
		most         int
	}{
		{"UUIDs", "%08x-0000-4000-8000-%012x", 10_000},
		{"other UIDs", "%x-%x", 10_000},
		{"long UIDs", "%0200d%d", 1_000}, // a digest of each is computed, which takes most of the time
	} {
		for _, references := range []int{8, 9, c.most} {
			t.Run(fmt.Sprint(references, " ", c.name), func(t *testing.T) { checkBytesOf(t, references, c.format) })
		}
	}
}

// checkBytesOf observes objects with so many owners, whose UIDs have a format.
func checkBytesOf(t *testing.T, references int, format string) {
	t.Helper()
	const objects, most, bytesOfObject = 100, 8, 4096
	owners := make([]ownership.Reference, references)
	g := ownership.NewKeeping(most)
	g.SetScope(configMap, ownership.Namespaced)
	before := heapInUse()
	for i := range objects {
		for n := range owners {
			owners[n] = ownership.Reference{APIVersion: "v1", Kind: configMap.Kind, Name: "a", UID: ownership.UID(fmt.Sprintf(format, i, n))}
		}
		o := object(ownership.UID(fmt.Sprint("object-", i)), 1)
		o.Owners = owners
		g.Observe(ownership.Bounded(o))
		for _, owner := range g.Owners(o.UID) {
			g.Resolve(owner.Claim, ownership.Absent, ownership.Active)
		}
	}
	clear(owners)
	if each := int(heapInUse()-before) / objects; each < 500 || each > bytesOfObject {
		t.Errorf("an object takes %d bytes, want at most %d", each, bytesOfObject)
	} else {
		t.Logf("an object takes %d bytes", each)
	}
	if got := g.Stats(); got.Objects != objects || got.References > most*objects || got.Answers != got.References {
		t.Errorf("the graph holds %+v", got)
	}
	check(t, g)
	runtime.KeepAlive(owners)
}

func heapInUse() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
