package verdict_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
)

// One test for each rule of docs/semantics.md that graph and verdict hold; the
// objects are written as in the scenarios (see parseObject).

// decides checks the decisions about some objects: "uid: decision" each.
func (s *scenario) decides(want ...string) {
	s.t.Helper()
	for _, line := range want {
		uid, _, _ := strings.Cut(line, ":")
		if diff := cmp.Diff(line+"\n", s.decide(ownership.UID(uid))); diff != "" {
			s.t.Errorf("decision about %s (-want +got):\n%s", uid, diff)
		}
	}
	if err := s.graph.Check(); err != nil {
		s.t.Error(err)
	}
}

// decision returns the decision about an object as a value.
func (s *scenario) decision(uid ownership.UID) verdict.Decision {
	s.t.Helper()
	facts, ok := verdict.Gather(s.graph, uid)
	if !ok {
		s.t.Fatalf("%s is not observed", uid)
	}
	return verdict.Decide(facts)
}

// answer resolves a claim: "ReplicaSet.apps default/web u1 absent".
func (s *scenario) answer(text string) []ownership.UID { return s.resolve(strings.Fields(text)) }

func (s *scenario) returns(got []ownership.UID, want ...ownership.UID) {
	s.t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Errorf("UIDs to reconsider (-want +got):\n%s", diff)
	}
}

func TestR1_NewObjectOfTheSameNameIsNotTheOwner(t *testing.T) {
	s := newScenario(t)
	s.observe(
		"old ConfigMap default/cm",
		"p1 Pod default/p1 owner=v1:ConfigMap:cm:old",
		"p2 Pod default/p2 owner=v7:ConfigMap:cm:old", // the version is a hint only
	)
	s.decides("p1: keep: held by ConfigMap cm", "p2: keep: held by ConfigMap cm")

	// The name is taken again, by another object: the identity is the UID.
	s.forget("old")
	s.observe("new ConfigMap default/cm")
	s.decides("p1: delete Background: owners absent: ConfigMap cm", "p2: delete Background: owners absent: ConfigMap cm")
}

func TestR2_ClaimIsPresentAbsentOrUnknown(t *testing.T) {
	s := newScenario(t)
	s.observe("p1 Pod default/p1 owner=v1:ConfigMap:cm:u1", "p2 Pod default/p2 owner=v1:ConfigMap:cm:u1")
	s.decides("p1: verify ConfigMap default/cm (u1)") // Unknown
	s.answer("ConfigMap default/cm u1 present")
	s.decides("p1: keep: held by ConfigMap cm", "p2: keep: held by ConfigMap cm") // Present by read
	s.answer("ConfigMap default/cm u1 absent")
	s.decides("p1: delete Background: owners absent: ConfigMap cm") // Absent
	s.observe("u1 ConfigMap default/cm")
	s.decides("p1: keep: held by ConfigMap cm") // Present by observation

	// A claim is Present, at its coordinates, never a UID.
	s.observe("p3 Pod default/p3 owner=v1:ConfigMap:other:u1", "p4 Pod elsewhere/p4 owner=v1:ConfigMap:cm:u1")
	s.decides("p3: verify ConfigMap default/other (u1)")
	if got := s.decide("p4"); !strings.HasPrefix(got, "p4: verify ConfigMap elsewhere/cm (u1)\n") {
		t.Errorf("decision about p4: %s", got)
	}
}

func TestR3_OnlyEvidenceProvesAbsence(t *testing.T) {
	const garbage = "p1: delete Background: owners absent: ConfigMap cm"
	const unknown = "p1: verify ConfigMap default/cm (u1)"
	for _, test := range []struct {
		name string
		do   func(s *scenario)
		want string
	}{
		{"a DELETED event is evidence", func(s *scenario) { s.forget("u1") }, garbage},
		{"a live read that did not find it is evidence", func(s *scenario) {
			s.graph.Vanish("u1")
			s.answer("ConfigMap default/cm u1 absent")
		}, garbage},
		{"a relist without the object is none", func(s *scenario) {
			s.graph.Replace(parseKind("ConfigMap"), nil)
		}, unknown},
		{"neither is that the object is not where it was", func(s *scenario) { s.graph.Vanish("u1") }, unknown},
		{"nor a kind that is not served", func(s *scenario) {
			s.graph.Vanish("u1")
			s.graph.SetScope(parseKind("ConfigMap"), ownership.ScopeUnknown)
			s.answer("ConfigMap default/cm u1 absent")
		}, "p1: park on ConfigMap"},
		{"a live read says nothing against the feed", func(s *scenario) {
			s.answer("ConfigMap default/cm u1 absent")
		}, "p1: keep: held by ConfigMap cm"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newScenario(t)
			s.observe("u1 ConfigMap default/cm", "p1 Pod default/p1 owner=v1:ConfigMap:cm:u1")
			test.do(s)
			s.decides(test.want)
		})
	}
}

// H4.
func TestR4_NewEpochForgetsAbsence(t *testing.T) {
	s := newScenario(t)
	s.observe(
		"u1 ConfigMap default/one", "p1 Pod default/p1 owner=v1:ConfigMap:one:u1",
		"p2 Pod default/p2 owner=v1:ConfigMap:two:u2", "p3 Pod default/p3 owner=v1:ConfigMap:three:u3",
		"u4 ConfigMap default/four rv=1000", "p4 Pod default/p4 owner=v1:ConfigMap:four:u4",
	)
	s.forget("u1")
	s.answer("ConfigMap default/two u2 absent")
	s.answer("ConfigMap default/three u3 present")
	s.returns(s.graph.NewEpoch(), "p1", "p2", "p3")
	s.decides(
		"p1: verify ConfigMap default/one (u1)", "p2: verify ConfigMap default/two (u2)",
		"p3: verify ConfigMap default/three (u3)", "p4: keep: held by ConfigMap four",
	)

	// Versions of the restored server may be lower; they count now.
	s.returns(s.observe("u4 ConfigMap default/four rv=7 foreground"), "p4", "u4")
	s.observe("u1 ConfigMap default/one rv=3")
	s.decides("p1: keep: held by ConfigMap one")
}

// A backup may have undone the start of a deletion.
func TestR4_NewEpochRereadsDeletions(t *testing.T) {
	s := newScenario(t)
	s.observe(
		"f ConfigMap default/f rv=1000 foreground", "p1 Pod default/p1 owner=v1:ConfigMap:f:f:blocking",
		"o ConfigMap default/o rv=1000 orphaning", "p2 Pod default/p2 owner=v1:ConfigMap:o:o",
		"x ConfigMap default/x rv=1000 foreground owner=v1:ConfigMap:y:y:blocking",
		"y ConfigMap default/y rv=1000 foreground owner=v1:ConfigMap:x:x:blocking",
	)
	s.decides("f: await p1", "p1: delete Background: owners in foreground deletion: ConfigMap f",
		"o: disown p2", "p2: keep: held by ConfigMap o", "x: unblock the cycle x, y")
	s.returns(s.graph.NewEpoch(), "f", "o", "p1", "x", "y")
	s.decides("f: reread f", "p1: reread f", "o: reread o", "p2: keep: held by ConfigMap o", "x: reread x, y")

	// The read of f confirms the deletion: f and p1 are returned. The reads of o and x show undone deletions.
	s.returns(s.observe("f ConfigMap default/f rv=1000 foreground"), "f", "p1")
	s.decides("f: await p1", "p1: delete Background: owners in foreground deletion: ConfigMap f")
	s.returns(s.observe("o ConfigMap default/o rv=9"))
	s.decides("o: keep: no owner references", "p2: keep: held by ConfigMap o")
	s.observe("x ConfigMap default/x rv=9 owner=v1:ConfigMap:y:y:blocking")
	s.decides("x: reread y")
}

func TestR5_OwnerIsInTheSameNamespaceOrClusterScoped(t *testing.T) {
	s := newScenario(t)
	s.observe(
		"n1 Node n1", "p1 Pod default/p1 owner=v1:Node:n1:n1", "r1 ClusterRole.rbac r1 owner=v1:Node:n1:n1",
		"cm ConfigMap other/cm", "p2 Pod default/p2 owner=v1:ConfigMap:cm:cm", "n2 Node n2 owner=v1:ConfigMap:cm:cm",
	)
	s.decides("p1: keep: held by Node n1", "r1: keep: held by Node n1")

	// Another namespace: reported, and Absent once that is verified at home.
	const abroad = "p2: report: the owner lives in another namespace, other: ConfigMap cm\n"
	if got, want := s.decide("p2"), "p2: verify ConfigMap default/cm (cm)\n"+abroad; got != want {
		t.Errorf("got %s want %s", got, want)
	}
	s.answer("ConfigMap default/cm cm absent")
	if got, want := s.decide("p2"), "p2: delete Background: owners absent: ConfigMap cm\n"+abroad; got != want {
		t.Errorf("got %s want %s", got, want)
	}

	// A cluster-scoped dependent of a namespaced owner: reported, and never deleted
	// for it, even if the owner is deleted.
	const keep = "n2: keep: a cluster-scoped object cannot have a namespaced owner: ConfigMap cm\n"
	for _, change := range []func(){
		func() {},
		func() { s.observe("cm ConfigMap other/cm foreground") },
		func() { s.forget("cm") },
		func() { s.graph.NewEpoch() },
	} {
		change()
		if got := s.decide("n2"); !strings.HasPrefix(got, keep+"n2: report: a cluster-scoped object names an owner") {
			t.Errorf("got %s want %s and a report", got, keep)
		}
	}
}

func TestR6_BadClaimHarmsNobodyElse(t *testing.T) {
	steps := map[string]func(s *scenario){
		"owner":        func(s *scenario) { s.observe("u1 Deployment.apps default/web") },
		"good":         func(s *scenario) { s.observe("good Pod default/good owner=apps/v1:Deployment:web:u1") },
		"bad kind":     func(s *scenario) { s.observe("bad1 Pod default/bad1 owner=v1:ConfigMap:web:u1") },
		"bad place":    func(s *scenario) { s.observe("bad2 Pod other/bad2 owner=apps/v1:Deployment:web:u1") },
		"bad scope":    func(s *scenario) { s.observe("bad3 Node bad3 owner=apps/v1:Deployment:web:u1") },
		"kind is read": func(s *scenario) { s.answer("ConfigMap default/web u1 absent") },
		"bad one goes": func(s *scenario) { s.forget("bad1") },
	}
	var names []string
	for name := range steps {
		names = append(names, name)
	}
	permute(names, func(order []string) {
		s := newScenario(t)
		for _, name := range order {
			steps[name](s)
		}
		if got, want := s.decide("good", "u1"), "good: keep: held by Deployment.apps web\nu1: keep: no owner references\n"; got != want {
			t.Fatalf("in the order %q, got\n%swant\n%s", order, got, want)
		}
	})
}

// permute calls f with every order of the names.
func permute(names []string, f func([]string)) {
	var from func(n int)
	from = func(n int) {
		if n == len(names) {
			f(names)
			return
		}
		for i := n; i < len(names); i++ {
			names[n], names[i] = names[i], names[n]
			from(n + 1)
			names[n], names[i] = names[i], names[n]
		}
	}
	from(0)
}

func TestR7_StateOfAnOwnerReference(t *testing.T) {
	s := newScenario(t)
	s.observe(
		"solid ConfigMap default/solid", "ends ConfigMap default/ends deleting finalizers=example.com/mine",
		"orphans ConfigMap default/orphans orphaning", "waits ConfigMap default/waits foreground",
		"dangles ConfigMap default/dangles",
		"p Pod default/p owner=v1:ConfigMap:solid:solid owner=v1:ConfigMap:ends:ends owner=v1:ConfigMap:orphans:orphans"+
			" owner=v1:ConfigMap:waits:waits owner=v1:ConfigMap:dangles:dangles owner=v1:ConfigMap:who:who owner=x/v1:What:what:what",
	)
	s.forget("dangles")
	facts, _ := verdict.Gather(s.graph, "p")
	var got []verdict.Standing
	for _, o := range facts.Owners {
		got = append(got, o.Standing)
	}
	want := []verdict.Standing{
		verdict.Solid, verdict.Solid, verdict.Solid, verdict.Waiting, verdict.Dangling, verdict.Unverified, verdict.Unmapped,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("standings (-want +got):\n%s", diff)
	}

	// Any Unknown: verify first, one read for all claimants.
	s.decides("p: verify ConfigMap default/who (who)")
	s.observe("q Pod default/q owner=v1:ConfigMap:who:who")
	s.returns(s.answer("ConfigMap default/who who absent"), "p", "q")

	// An unmapped kind parks the object until the kind appears; a solid owner decides alone.
	s.observe("r Pod default/r owner=x/v1:What:what:what owner=v1:ConfigMap:who:who")
	s.answer("ConfigMap default/who who absent")
	s.decides("r: park on What.x")
	s.returns(s.graph.SetScope(parseKind("What.x"), ownership.Namespaced), "p", "r")
	s.decides("r: verify What.x default/what (what)")
}

func TestR8_WithoutOwnersOrTerminatingItIsKept(t *testing.T) {
	s := newScenario(t)
	s.observe(
		"root Pod default/root", "finalized Pod default/finalized finalizers=orphan,foregroundDeletion",
		"p Pod default/p deleting finalizers=example.com/mine owner=v1:ConfigMap:o:o",
	)
	s.forget("o")
	s.decides("root: keep: no owner references", "finalized: keep: no owner references", "p: keep: already terminating")
}

func TestR9_SolidOwnerKeepsAndDetaches(t *testing.T) {
	s := newScenario(t)
	s.observe(
		"solid ConfigMap default/solid", "waits ConfigMap default/waits foreground",
		"p Pod default/p owner=v1:ConfigMap:gone:gone:controller owner=v3:ConfigMap:solid:solid:nonblocking:controller"+
			" owner=v1:ConfigMap:waits:waits:blocking owner=x/v1:What:what:what:blocking",
		"c ConfigMap default/c owner=v1:Pod:p:p",
	)
	s.forget("gone")
	want := verdict.Detach{
		Remove: []ownership.UID{"gone", "waits"},
		Remaining: []ownership.Reference{
			{APIVersion: "v3", Kind: "ConfigMap", Name: "solid", UID: "solid", Controller: ownership.True, BlockOwnerDeletion: ownership.False},
			{APIVersion: "x/v1", Kind: "What", Name: "what", UID: "what", BlockOwnerDeletion: ownership.True},
		},
		Reason: "held by ConfigMap solid; owners absent: ConfigMap gone; " +
			"owners in foreground deletion: ConfigMap waits; kinds not served: What.x what",
	}
	if diff := cmp.Diff(verdict.Decision(want), s.decision("p")); diff != "" {
		t.Errorf("decision (-want +got):\n%s", diff)
	}
}

func TestR10_ForegroundPropagatesAndCyclesAreCut(t *testing.T) {
	s := newScenario(t)
	s.observe(
		"o ConfigMap default/o foreground",
		"p Pod default/p owner=v1:ConfigMap:o:o", "c ConfigMap default/c owner=v1:Pod:p:p", "leaf Pod default/leaf owner=v1:ConfigMap:o:o",
	)
	s.decides(
		"p: delete Foreground: owners in foreground deletion: ConfigMap o",
		"leaf: delete Background: owners in foreground deletion: ConfigMap o",
	)

	// A cycle is unblocked inside, and nowhere else.
	s.observe(
		"a ConfigMap default/a foreground owner=v1:ConfigMap:b:b:blocking owner=v1:ConfigMap:o:o:blocking owner=v1:ConfigMap:b:b:controller" +
			" owner=v1:ConfigMap:wrong:b:blocking",
	)
	s.decides("a: remove-finalizer foregroundDeletion")
	s.returns(s.observe("b ConfigMap default/b foreground owner=v1:ConfigMap:a:a:blocking"), "a", "b")
	want := verdict.Unblock{
		Cycle: []ownership.UID{"a", "b"},
		Owners: []ownership.Reference{
			{APIVersion: "v1", Kind: "ConfigMap", Name: "b", UID: "b", BlockOwnerDeletion: ownership.False},
			{APIVersion: "v1", Kind: "ConfigMap", Name: "o", UID: "o", BlockOwnerDeletion: ownership.True},
			{APIVersion: "v1", Kind: "ConfigMap", Name: "b", UID: "b", Controller: ownership.True},
			{APIVersion: "v1", Kind: "ConfigMap", Name: "wrong", UID: "b", BlockOwnerDeletion: ownership.True},
		},
	}
	if diff := cmp.Diff(verdict.Decision(want), s.decision("a")); diff != "" {
		t.Errorf("decision (-want +got):\n%s", diff)
	}
	s.decides("o: await a")
}

func TestR11_OtherwiseItIsDeleted(t *testing.T) {
	for _, test := range []struct{ finalizers, want string }{
		{"", "delete Background"},
		{" finalizers=example.com/mine", "delete Background"},
		{" finalizers=example.com/mine,orphan", "delete Orphan"},
		{" finalizers=foregroundDeletion", "delete Foreground"},
		{" finalizers=foregroundDeletion,orphan", "delete Orphan"},
	} {
		s := newScenario(t)
		s.observe(
			"p Pod default/p owner=v1:ConfigMap:a:a owner=v1:ConfigMap:b:b"+test.finalizers,
			"c ConfigMap default/c owner=v1:Pod:p:p", "b ConfigMap default/b",
		)
		s.forget("a")
		s.forget("b")
		s.decides("p: " + test.want + ": owners absent: ConfigMap a, ConfigMap b")
	}
}

func TestR13_OrphanReleasesItsDependents(t *testing.T) {
	s := newScenario(t)
	s.observe(
		"o Deployment.apps default/o finalizers=example.com/first orphaning finalizers=example.com/last",
		"p1 ReplicaSet.apps default/p1 owner=apps/v1:Deployment:o:o:blocking", "p2 ReplicaSet.apps default/p2 owner=apps/v1:Deployment:o:o",
		"bad ReplicaSet.apps default/bad owner=apps/v1:Deployment:wrong:o",
	)
	s.decides("o: disown bad, p1, p2") // whether its claim is valid makes no difference, as long as nobody has read it
	s.resolve(strings.Fields("Deployment.apps default/wrong o absent"))
	s.decides("o: disown p1, p2")
	s.returns(s.observe("p1 ReplicaSet.apps default/p1"), "o")
	s.decides("o: disown p2")
	s.returns(s.observe("p2 ReplicaSet.apps default/p2", "p1 ReplicaSet.apps default/p1 owner=apps/v1:Deployment:o:o"), "o")
	s.decides("o: disown p1") // again until none is found
	s.returns(s.forget("p1"), "o")
	want := verdict.RemoveFinalizer{Finalizer: ownership.FinalizerOrphan, Remaining: []string{"example.com/first", "example.com/last"}}
	if diff := cmp.Diff(verdict.Decision(want), s.decision("o")); diff != "" {
		t.Errorf("decision (-want +got):\n%s", diff)
	}
}

func TestR14_ForegroundOwnerAwaitsItsBlockingDependents(t *testing.T) {
	s := newScenario(t)
	s.observe(
		"o Deployment.apps default/o", "p1 ReplicaSet.apps default/p1 owner=apps/v1:Deployment:o:o:blocking",
		"p2 ReplicaSet.apps default/p2 owner=apps/v1:Deployment:o:o",
	)
	s.returns(s.observe("o Deployment.apps default/o foreground finalizers=example.com/mine"), "o", "p1", "p2") // every dependent
	s.decides("o: await p1")
	s.returns(s.forget("p1"), "o")
	want := verdict.RemoveFinalizer{Finalizer: ownership.FinalizerForeground, Remaining: []string{"example.com/mine"}}
	if diff := cmp.Diff(verdict.Decision(want), s.decision("o")); diff != "" {
		t.Errorf("decision (-want +got):\n%s", diff)
	}

	// A finalizer that is added again is removed again, on every observation.
	s.observe("o Deployment.apps default/o deleting finalizers=example.com/mine")
	s.decides("o: keep: already terminating")
	const again = "o Deployment.apps default/o deleting finalizers=example.com/mine,foregroundDeletion"
	s.returns(s.observe(again), "o", "p2")
	s.returns(s.observe(again), "o")
	s.decides("o: remove-finalizer foregroundDeletion")
}

// TestR16_OnlyOwnersAndFinalizersAreWritten looks at what the decisions of random histories would write. (That no
// request carries anything else is the collector's part.)
func TestR16_OnlyOwnersAndFinalizersAreWritten(t *testing.T) {
	checked := 0
	rapid.Check(t, func(t *rapid.T) {
		h, g, m := newGenerator(t), ownership.New(), newModel()
		for n, kind := range randomKinds {
			g.SetScope(kind, randomScopes[n])
		}
		t.Repeat(map[string]func(*rapid.T){"step": func(t *rapid.T) {
			what, _ := h.step(g, m)
			t.Log(what)
		}})
		for o := range g.All() {
			facts, _ := verdict.Gather(g, o.UID)
			if err := checkWrites(facts, verdict.Decide(facts)); err != nil {
				t.Fatal(err)
			}
			checked++
		}
	})
	if checked == 0 {
		t.Error("nothing was checked")
	}
}

func TestStandingHasAName(t *testing.T) {
	want := map[verdict.Standing]string{
		verdict.Unverified: "unverified", verdict.Solid: "solid", verdict.Waiting: "waiting",
		verdict.Dangling: "dangling", verdict.Unmapped: "unmapped", verdict.Misplaced: "misplaced",
	}
	for standing, name := range want {
		if got := standing.String(); got != name {
			t.Errorf("%d is called %q, want %q", standing, got, name)
		}
	}
}
