package ownership_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// evidenceOf returns the basis of the presence of an object's only owner.
func evidenceOf(t *testing.T, g *ownership.Graph, uid ownership.UID) ownership.Evidence {
	t.Helper()
	owners := g.Owners(uid)
	if len(owners) != 1 {
		t.Fatalf("%s has %d owners, want 1", uid, len(owners))
	}
	if known := owners[0].Presence != ownership.Unknown; known != (owners[0].Evidence.Source != ownership.NoSource) {
		t.Errorf("presence %v rests on %v", owners[0].Presence, owners[0].Evidence.Source)
	}
	return owners[0].Evidence
}

// R5 before R3: a cluster-scoped object names an owner of a kind that is not
// served. The kind may turn out to be namespaced, so no decision may rest on it
// before; the DELETED event of another kind with that UID is no evidence.
func TestR5_AbsenceOfAnotherKindDoesNotPlaceAnOwner(t *testing.T) {
	widget := ownership.Kind{Group: "example.com", Kind: "Widget"}
	child := ownership.Object{
		UID: "child", Kind: node, Name: "child", ResourceVersion: "2",
		Owners: []ownership.Reference{{APIVersion: "example.com/v1", Kind: "Widget", Name: "owner", UID: "owner"}},
	}
	for kind, want := range map[ownership.Kind]ownership.Presence{node: ownership.Unknown, widget: ownership.Absent} {
		g := newGraph(t)
		g.SetScope(widget, ownership.Cluster)
		g.Observe(ownership.Object{UID: "owner", Kind: kind, Name: "owner", ResourceVersion: "1"})
		g.Observe(child)
		g.Forget("owner", "3")
		g.SetScope(widget, ownership.ScopeUnknown)
		if got := g.Owners("child")[0]; got.Presence != want || want == ownership.Unknown && got.Obstacle != ownership.Unmapped {
			t.Errorf("after an object of kind %s with that UID is gone the owner is %v (%v), want %v", kind, got.Presence, got.Obstacle, want)
		}
	}
}

func TestR3_EveryPresenceHasItsEvidence(t *testing.T) {
	claim := ownership.Claim{Kind: configMap, Namespace: "default", Name: "owner", UID: "owner"}
	tests := map[string]struct {
		tell func(g *ownership.Graph)
		want ownership.Evidence
	}{
		"nothing":     {func(*ownership.Graph) {}, ownership.Evidence{}},
		"observation": {func(g *ownership.Graph) { g.Observe(object("owner", 7)) }, ownership.Evidence{Source: ownership.Observation, Revision: 7}},
		"event": {func(g *ownership.Graph) {
			g.Observe(object("owner", 7))
			g.Forget("owner", "9")
		}, ownership.Evidence{Source: ownership.DeletedEvent, Revision: 9, Time: 100}},
		"event, told twice": {func(g *ownership.Graph) {
			g.Forget("owner", "9")
			g.SetTime(200)
			g.Forget("owner", "9")
		}, ownership.Evidence{Source: ownership.DeletedEvent, Revision: 9, Time: 100}},
		"event without a number": {func(g *ownership.Graph) {
			g.Forget("owner", "ninth")
		}, ownership.Evidence{Source: ownership.DeletedEvent, Time: 100}},
		"read, absent": {func(g *ownership.Graph) {
			g.Resolve(claim, ownership.Absent, ownership.Active)
		}, ownership.Evidence{Source: ownership.LiveRead, Time: 100}},
		"read, present": {func(g *ownership.Graph) {
			g.Resolve(claim, ownership.Present, ownership.Active)
		}, ownership.Evidence{Source: ownership.LiveRead, Time: 100}},
		"back again": {func(g *ownership.Graph) {
			g.Forget("owner", "9")
			g.Observe(object("owner", 11))
		}, ownership.Evidence{Source: ownership.Observation, Revision: 11}},
		"another epoch": {func(g *ownership.Graph) {
			g.Forget("owner", "9")
			g.NewEpoch()
		}, ownership.Evidence{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := newGraph(t)
			g.SetTime(100)
			g.Observe(object("dependent", 3, "owner"))
			test.tell(g)
			check(t, g)
			if diff := cmp.Diff(test.want, evidenceOf(t, g, "dependent")); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// Without SetTime no time is kept.
func TestTimeIsOptional(t *testing.T) {
	g := newGraph(t)
	g.Observe(object("dependent", 3, "owner"))
	g.Forget("owner", "9")
	if got := evidenceOf(t, g, "dependent"); got.Time != 0 {
		t.Errorf("time = %d, want none", got.Time)
	}
	// No time is kept for an owner that is no longer claimed.
	g.SetTime(5)
	g.Forget("dependent", "10")
	check(t, g)
}

func TestSourceHasAName(t *testing.T) {
	want := map[ownership.Source]string{
		ownership.NoSource: "none", ownership.Observation: "observation",
		ownership.DeletedEvent: "deleted event", ownership.LiveRead: "live read",
	}
	for source, name := range want {
		if got := source.String(); got != name {
			t.Errorf("%d is called %q, want %q", source, got, name)
		}
	}
}

// R15: a read confirms what the graph knows, and never adds an object.
func TestR15_ReadConfirmsAndNeverAdds(t *testing.T) {
	tests := map[string]struct {
		tell      func(g *ownership.Graph)
		want      bool
		dependent bool // whether the object is one of the owner afterwards
	}{
		"never seen":            {func(*ownership.Graph) {}, false, false},
		"seen, as it is":        {func(g *ownership.Graph) { g.Observe(object("o", 5, "owner")) }, true, true},
		"seen, older":           {func(g *ownership.Graph) { g.Observe(object("o", 4)) }, true, true},
		"seen, newer":           {func(g *ownership.Graph) { g.Observe(object("o", 6)) }, true, false},
		"gone, not claimed":     {func(g *ownership.Graph) { g.Observe(object("o", 4)); g.Forget("o", "6") }, false, false},
		"gone after, is owner":  {func(g *ownership.Graph) { g.Observe(object("x", 3, "o")); g.Forget("o", "6") }, true, false},
		"gone before, is owner": {func(g *ownership.Graph) { g.Observe(object("x", 3, "o")); g.Forget("o", "4") }, false, false},
		"claimed only":          {func(g *ownership.Graph) { g.Observe(object("x", 3, "o")) }, false, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := newGraph(t)
			g.Observe(object("owner", 1))
			test.tell(g)
			_, known := g.Confirm(object("o", 5, "owner"))
			if known != test.want || g.HasDependents("owner") != test.dependent {
				t.Errorf("known %v, dependent %v; want %v, %v", known, g.HasDependents("owner"), test.want, test.dependent)
			}
		})
	}
}

func TestStatsAreCountedByKind(t *testing.T) {
	widget := ownership.Kind{Group: "example.com", Kind: "Widget"}
	g := newGraph(t)
	g.Observe(object("a", 1))
	for _, uid := range []ownership.UID{"b", "c"} {
		o := object(uid, 2)
		o.Owners = []ownership.Reference{{APIVersion: "example.com/v1", Kind: "Widget", Name: "w", UID: "w"}}
		g.Observe(o)
	}
	want := []ownership.KindStats{
		{Kind: configMap, Scope: ownership.Namespaced, Objects: 3},
		{Kind: node, Scope: ownership.Cluster},
	}
	parked := func() map[ownership.Kind]int {
		found := map[ownership.Kind]int{}
		ownership.Survey(viewOf(g), func(g *ownership.Graph, from ownership.Cursor) ownership.Cursor { return g.Parked(from, found) })
		return found
	}
	if got := parked(); len(got) != 1 || got[widget] != 2 {
		t.Errorf("parked references: %v, want 2 of widgets", got)
	}
	if diff := cmp.Diff(want, g.ByKind()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if g.Count(configMap) != 3 || g.Count(widget) != 0 || g.Count(ownership.Kind{Kind: "Never"}) != 0 {
		t.Errorf("counts are %d, %d, %d", g.Count(configMap), g.Count(widget), g.Count(ownership.Kind{Kind: "Never"}))
	}
	g.SetScope(widget, ownership.Namespaced)
	if got := parked(); len(got) > 0 {
		t.Errorf("parked references: %v, and the kind is served", got)
	}
	want = append(want, ownership.KindStats{Kind: widget, Scope: ownership.Namespaced})
	if diff := cmp.Diff(want, g.ByKind()); diff != "" {
		t.Errorf("once it is served, -want +got:\n%s", diff)
	}
}

// Presence returns for a claim what Owners returns for the reference that makes it.
func TestPresenceOfAClaim(t *testing.T) {
	g := newGraph(t)
	g.Observe(object("a", 1))
	dependent := object("d", 2, "a", "gone", "unread")
	dependent.Owners = append(dependent.Owners, ownership.Reference{APIVersion: "v1", Kind: "Node", Name: "n", UID: "n"})
	g.Observe(dependent)
	g.Resolve(ownership.Claim{Kind: configMap, Namespace: "default", Name: "gone", UID: "gone"}, ownership.Absent, ownership.Active)
	g.Resolve(ownership.Claim{Kind: node, Name: "n", UID: "n"}, ownership.Present, ownership.Active)
	for _, o := range g.Owners("d") {
		if got := g.Presence(o.Claim); got != o.Presence {
			t.Errorf("%s: %v, want %v", o.Claim, got, o.Presence)
		}
	}
	for _, c := range []ownership.Claim{
		{},
		{Kind: configMap, Namespace: "default", Name: "other", UID: "a"},
		{Kind: configMap, Namespace: "elsewhere", Name: "a", UID: "a"},
		{Kind: node, Name: "a", UID: "a"},
		{Kind: configMap, Namespace: "default", Name: "nobody", UID: "nobody"},
	} {
		if got := g.Presence(c); got != ownership.Unknown {
			t.Errorf("%s, which is not claimed: %v", c, got)
		}
	}
}
