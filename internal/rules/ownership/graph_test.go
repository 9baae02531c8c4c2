package ownership_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// The rules are tested with package verdict, in the scenarios and histories there.
// The tests here are about the graph as a data structure.

var (
	configMap = ownership.Kind{Kind: "ConfigMap"}
	node      = ownership.Kind{Kind: "Node"}
)

func newGraph(t *testing.T) *ownership.Graph {
	t.Helper()
	g := ownership.New()
	g.SetScope(configMap, ownership.Namespaced)
	g.SetScope(node, ownership.Cluster)
	t.Cleanup(func() { check(t, g) })
	return g
}

// viewOf returns a view of a graph that nobody changes meanwhile.
func viewOf(g *ownership.Graph) func(read func(g *ownership.Graph)) {
	return func(read func(g *ownership.Graph)) { read(g) }
}

func check(t *testing.T, g *ownership.Graph) {
	t.Helper()
	if err := g.Check(); err != nil {
		t.Fatal(err)
	}
}

// object returns a ConfigMap whose name is its UID, with owners named in the same way.
func object(uid ownership.UID, version int, owners ...ownership.UID) ownership.Object {
	o := ownership.Object{
		UID: uid, Kind: configMap, Namespace: "default", Name: string(uid), ResourceVersion: strconv.Itoa(version),
	}
	for _, owner := range owners {
		o.Owners = append(o.Owners, reference(owner))
	}
	return o
}

func reference(owner ownership.UID) ownership.Reference {
	return ownership.Reference{APIVersion: "v1", Kind: "ConfigMap", Name: string(owner), UID: owner}
}

// foreground returns an object in foreground deletion that blocks its owners.
func foreground(uid ownership.UID, version int, owners ...ownership.UID) ownership.Object {
	o := object(uid, version, owners...)
	o.Phase, o.Finalizers = ownership.Foreground, []string{ownership.FinalizerForeground}
	for n := range o.Owners {
		o.Owners[n].BlockOwnerDeletion = ownership.True
	}
	return o
}

func returns(t *testing.T, got []ownership.UID, want ...ownership.UID) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("UIDs to reconsider (-want +got):\n%s", diff)
	}
}

func TestObjectIsReturnedAsItWasObserved(t *testing.T) {
	const uuid = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
	every := ownership.Object{
		UID: uuid, Kind: ownership.Kind{Group: "example.com", Kind: "Widget"}, Namespace: "ns", Name: "name",
		ResourceVersion: "12345678901234567890", Phase: ownership.Orphaning,
		Finalizers: []string{"b", "orphan", "a,b", `c\,d`},
	}
	for _, controller := range []ownership.Flag{ownership.Unset, ownership.False, ownership.True} {
		for _, blocking := range []ownership.Flag{ownership.Unset, ownership.False, ownership.True} {
			every.Owners = append(every.Owners, ownership.Reference{
				APIVersion: "apps/v" + strconv.Itoa(len(every.Owners)), Kind: "ReplicaSet", Name: "web",
				UID: ownership.UID(fmt.Sprint("owner", len(every.Owners)%4)), Controller: controller, BlockOwnerDeletion: blocking,
			})
		}
	}
	for _, test := range []struct {
		name   string
		change func(o *ownership.Object)
	}{
		{"as it is", func(*ownership.Object) {}},
		{"UID in upper case", func(o *ownership.Object) { o.UID = ownership.UID(strings.ToUpper(uuid)) }},
		{"UID without hyphens", func(o *ownership.Object) { o.UID = "0a1b2c3d04e5f060710829304a5b6c7d8e9f" }},
		{"UID with a letter too far", func(o *ownership.Object) { o.UID = "0a1b2c3g-4e5f-6071-8293-a4b5c6d7e8f9" }},
		{"short UID", func(o *ownership.Object) { o.UID = "1" }},
		{"version zero", func(o *ownership.Object) { o.ResourceVersion = "0" }},
		{"version with a leading zero", func(o *ownership.Object) { o.ResourceVersion = "007" }},
		{"version beyond 64 bits", func(o *ownership.Object) { o.ResourceVersion = "18446744073709551616" }},
		{"version that is no number", func(o *ownership.Object) { o.ResourceVersion = "7x" }},
		{"no version", func(o *ownership.Object) { o.ResourceVersion = "" }},
		{"no finalizers", func(o *ownership.Object) { o.Finalizers = nil }},
		{"one finalizer", func(o *ownership.Object) { o.Finalizers = []string{"b,orphan"} }},
		{"no owners", func(o *ownership.Object) { o.Owners = nil }},
		{"itself as owner", func(o *ownership.Object) { o.Owners[0].UID = o.UID }},
		{"a strange apiVersion", func(o *ownership.Object) { o.Owners[0].APIVersion = "/v1" }},
		{"a stranger one", func(o *ownership.Object) { o.Owners[0].APIVersion = "a/b/c" }},
		{"empty names", func(o *ownership.Object) { o.Owners[0].Name, o.Name, o.Namespace = "", "", "" }},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := newGraph(t)
			want := every
			want.Owners = slices.Clone(every.Owners)
			test.change(&want)
			g.Observe(want)
			got, ok := g.Object(want.UID)
			if diff := cmp.Diff(want, got); !ok || diff != "" {
				t.Errorf("object (-want +got):\n%s", diff)
			}
			var references []ownership.Reference
			for _, o := range g.Owners(want.UID) {
				references = append(references, o.Reference)
			}
			if diff := cmp.Diff(want.Owners, references); diff != "" {
				t.Errorf("owners (-want +got):\n%s", diff)
			}
			check(t, g)
			g.Forget(want.UID, "")
			if want := (ownership.Stats{}); g.Stats() != want {
				t.Errorf("after its end the graph holds %+v", g.Stats())
			}
		})
	}
}

func TestObservationsByVersion(t *testing.T) {
	for _, test := range []struct {
		first, then string
		accepted    bool
	}{
		{"5", "6", true},
		{"5", "5", false},
		{"5", "05", false},
		{"5", "4", false},
		{"9", "10", true},
		{"007", "6", false},
		{"007", "8", true},
		{"x", "1", true},
		{"1", "x", true},
		{"x", "x", false},
		{"", "", true},
		{"0", "1", true},
	} {
		g := newGraph(t)
		g.Observe(object("a", 0, "before"))
		first, then := object("a", 0, "before"), object("a", 0, "after")
		first.ResourceVersion, then.ResourceVersion = test.first, test.then
		g.Vanish("a")
		g.Observe(first)
		g.Observe(then)
		if o, _ := g.Object("a"); (o.Owners[0].UID == "after") != test.accepted {
			t.Errorf("%q after %q: owner is %s, accepted should be %t", test.then, test.first, o.Owners[0].UID, test.accepted)
		}
		check(t, g)
	}
}

func TestUnobservedObjectHasNoOwnersOrDependents(t *testing.T) {
	g := newGraph(t)
	g.Observe(object("a", 1, "owner"))
	for _, uid := range []ownership.UID{"owner", "nobody", "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"} {
		if o, ok := g.Object(uid); ok {
			t.Errorf("%s is observed: %+v", uid, o)
		}
		if owners := g.Owners(uid); owners != nil {
			t.Errorf("%s has owners: %+v", uid, owners)
		}
		if g.HasDependents(uid) || slices.Collect(g.Dependents(uid)) != nil || slices.Collect(g.Blocking(uid)) != nil {
			t.Errorf("%s has dependents", uid)
		}
		if g.Cycle(uid) != nil || g.Doubtful(uid) != nil {
			t.Errorf("%s is in a cycle or doubtful", uid)
		}
	}
	returns(t, g.Refresh(object("nobody", 1)))
	returns(t, g.Vanish("nobody"))
	returns(t, g.Forget("nobody", "1"))
	returns(t, g.Observe(ownership.Object{Name: "without UID"}))
	returns(t, g.Resolve(ownership.Claim{Kind: configMap, UID: "nobody"}, ownership.Absent, 0))
	returns(t, g.Resolve(ownership.Claim{Kind: ownership.Kind{Kind: "Unheard"}, UID: "owner"}, ownership.Absent, 0))
	returns(t, g.SetScope(ownership.Kind{Kind: "Unheard"}, ownership.ScopeUnknown))
	returns(t, g.SetScope(configMap, ownership.Namespaced))
	if g.Len() != 1 {
		t.Errorf("the graph has %d objects, want 1", g.Len())
	}
}

func TestScopeIsTheLatest(t *testing.T) {
	g := newGraph(t)
	widget := ownership.Kind{Group: "example.com", Kind: "Widget"}
	for _, scope := range []ownership.Scope{
		ownership.ScopeUnknown, ownership.Namespaced, ownership.Cluster, ownership.ScopeUnknown, ownership.Cluster,
	} {
		g.SetScope(widget, scope)
		if got := g.Scope(widget); got != scope {
			t.Errorf("scope is %s, want %s", got, scope)
		}
		check(t, g)
	}
}

// A kind is deleted and comes back with another scope. Reads in the old scope do not count in the new one.
func TestChangeOfScopeForgetsReads(t *testing.T) {
	g := newGraph(t)
	widget := ownership.Kind{Kind: "Widget"}
	g.SetScope(widget, ownership.Namespaced)
	o := object("a", 1)
	o.Owners = []ownership.Reference{{APIVersion: "v1", Kind: "Widget", Name: "w", UID: "w"}}
	g.Observe(o)
	claim := ownership.Claim{Kind: widget, Namespace: "default", Name: "w", UID: "w"}
	returns(t, g.Resolve(claim, ownership.Absent, 0), "a")
	returns(t, g.SetScope(widget, ownership.Cluster), "a")
	if got := g.Owners("a")[0]; got.Presence != ownership.Unknown || got.Claim.Namespace != "" {
		t.Errorf("after the change of scope: %+v", got)
	}
	returns(t, g.Resolve(claim, ownership.Absent, 0), "a") // a read from before the change does not count
	if got := g.Owners("a")[0]; got.Presence != ownership.Unknown {
		t.Errorf("after a late answer: %+v", got)
	}
	claim.Namespace = ""
	returns(t, g.Resolve(claim, ownership.Present, ownership.Foreground), "a")
	if got := g.Owners("a")[0]; got.Presence != ownership.Present || got.Phase != ownership.Foreground {
		t.Errorf("after the answer: %+v", got)
	}
	returns(t, g.Resolve(claim, ownership.Unknown, 0), "a")
	if got := g.Owners("a")[0]; got.Presence != ownership.Unknown || g.Stats().Answers != 0 {
		t.Errorf("after the answer was taken back: %+v", got)
	}
}

// TestListConcernsOnlyChangedObjects checks which objects a list concerns.
func TestListConcernsOnlyChangedObjects(t *testing.T) {
	g := newGraph(t)
	returns(t, g.Replace(configMap, []ownership.Object{object("a", 1), object("b", 1, "a"), object("c", 1, "b"), object("d", 1, "elsewhere")}), "d")
	other := ownership.Object{UID: "n", Kind: node, Name: "n", ResourceVersion: "1"}
	g.Observe(other)
	returns(t, g.Replace(configMap, []ownership.Object{object("a", 1), object("b", 1, "a"), object("c", 1, "b"), object("d", 1, "elsewhere")}))
	check(t, g)
	returns(t, g.Replace(configMap, []ownership.Object{object("b", 2, "a"), object("c", 1, "b"), object("c", 1, "b")}), "b")
	check(t, g)
	var left []ownership.UID
	for o := range g.All() {
		left = append(left, o.UID)
	}
	if diff := cmp.Diff([]ownership.UID{"b", "c", "n"}, left); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	for o := range g.All() {
		if o.UID == "c" {
			t.Error("All goes on when it was asked to stop")
		}
		break
	}
	returns(t, g.Replace(ownership.Kind{Kind: "Unheard"}, nil))
	g.Forget("a", "9")
	returns(t, g.Replace(configMap, nil)) // a late list does not take the evidence back
	if g.Len() != 1 {
		t.Errorf("the graph holds %+v", g.Stats())
	}
}

func TestObjectsThatNeedARequestAreUnsettled(t *testing.T) {
	g := newGraph(t)
	g.Observe(object("root", 1))
	g.Observe(object("held", 1, "root"))
	g.Observe(object("garbage", 1, "gone"))
	g.Forget("gone", "1")
	g.Observe(object("unknown", 1, "unheard"))
	g.Observe(foreground("deleted", 1))
	returns(t, ownership.All(viewOf(g), (*ownership.Graph).Unsettled), "deleted", "garbage", "unknown")
}

// TestIterationStops checks that iterators stop when their loop does.
func TestIterationStops(t *testing.T) {
	g := newGraph(t)
	g.Observe(foreground("owner", 1))
	for i := range 3 {
		g.Observe(foreground(ownership.UID(fmt.Sprint(i)), 1, "owner"))
	}
	seen := 0
	for range g.Dependents("owner") {
		seen++
		break
	}
	for range g.Blocking("owner") {
		seen++
		break
	}
	if seen != 2 {
		t.Errorf("saw %d dependents, want 2", seen)
	}
}

func TestValuesPrintAsKubernetesNamesThem(t *testing.T) {
	for _, test := range []struct {
		value fmt.Stringer
		want  string
	}{
		{configMap, "ConfigMap"},
		{ownership.Kind{Group: "apps", Kind: "ReplicaSet"}, "ReplicaSet.apps"},
		{reference("a").OwnerKind(), "ConfigMap"},
		{ownership.Reference{APIVersion: "apps/v1", Kind: "ReplicaSet"}.OwnerKind(), "ReplicaSet.apps"},
		{ownership.Claim{Kind: configMap, Namespace: "ns", Name: "n", UID: "u"}, "ConfigMap ns/n (u)"},
		{ownership.Claim{Kind: node, Name: "n", UID: "u"}, "Node n (u)"},
		{ownership.ScopeUnknown, "unknown"},
		{ownership.Namespaced, "namespaced"},
		{ownership.Cluster, "cluster"},
		{ownership.Active, "active"},
		{ownership.Orphaning, "orphaning"},
		{ownership.Foreground, "foreground"},
		{ownership.Terminating, "terminating"},
		{ownership.Unknown, "unknown"},
		{ownership.Present, "present"},
		{ownership.Absent, "absent"},
	} {
		if got := test.value.String(); got != test.want {
			t.Errorf("%#v is %q, want %q", test.value, got, test.want)
		}
	}
}

// TR-04.
func TestPhaseFollowsFromDeletionAndFinalizers(t *testing.T) {
	for _, test := range []struct {
		deleting   bool
		finalizers []string
		want       ownership.Phase
	}{
		{false, nil, ownership.Active},
		{false, []string{"orphan", "foregroundDeletion"}, ownership.Active},
		{true, nil, ownership.Terminating},
		{true, []string{"example.com/mine"}, ownership.Terminating},
		{true, []string{"example.com/mine", "orphan"}, ownership.Orphaning},
		{true, []string{"foregroundDeletion", "example.com/mine"}, ownership.Foreground},
		{true, []string{"foregroundDeletion", "orphan"}, ownership.Orphaning}, // TR-04
		{true, []string{"orphan", "foregroundDeletion"}, ownership.Orphaning},
	} {
		if got := ownership.PhaseOf(test.deleting, test.finalizers); got != test.want {
			t.Errorf("PhaseOf(%t, %v) = %s, want %s", test.deleting, test.finalizers, got, test.want)
		}
	}
}

// An object is found by its name, in its own namespace and kind, and only while it is observed.
func TestObservedObjectIsFoundByName(t *testing.T) {
	g := ownership.New()
	pods, jobs := ownership.Kind{Kind: "Pod"}, ownership.Kind{Group: "batch", Kind: "Job"}
	g.SetScope(pods, ownership.Namespaced)
	g.Observe(ownership.Object{UID: "p", Kind: pods, Namespace: "shop", Name: "web", Owners: []ownership.Reference{{APIVersion: "batch/v1", Kind: "Job", Name: "web", UID: "j"}}})
	g.Observe(ownership.Object{UID: "q", Kind: pods, Namespace: "other", Name: "web"})
	g.Observe(ownership.Object{UID: "n", Kind: ownership.Kind{Kind: "Node"}, Name: "web"})
	for _, c := range []struct {
		kind            ownership.Kind
		namespace, name string
		want            ownership.UID
	}{
		{pods, "shop", "web", "p"},
		{pods, "other", "web", "q"},
		{pods, "", "web", ""},
		{pods, "shop", "db", ""},
		{pods, "nowhere", "web", ""},
		{jobs, "shop", "web", ""}, // named as an owner, and not observed
		{ownership.Kind{Kind: "Node"}, "", "web", "n"},
		{ownership.Kind{Kind: "Volume"}, "", "web", ""},
	} {
		var want []ownership.UID
		if c.want != "" {
			want = []ownership.UID{c.want}
		}
		at := ownership.Location{Kind: c.kind, Namespace: c.namespace}
		got := ownership.All(viewOf(g), func(g *ownership.Graph, from ownership.Cursor) ([]ownership.UID, ownership.Cursor) {
			return g.Selected(from, &ownership.Selector{Names: map[ownership.Name]bool{{Location: at, Name: c.name}: true}})
		})
		if !slices.Equal(got, want) {
			t.Errorf("%v %s/%s: found %q, want %q", c.kind, c.namespace, c.name, got, want)
		}
	}
}
