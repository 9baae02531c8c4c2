package verdict_test

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
	"github.com/coppice-dev/coppice/internal/testing/histories"
)

// TestMain makes random histories longer and more numerous than rapid does by default.
// -rapid.checks and -rapid.steps on the command line override it.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"rapid.checks": "200", "rapid.steps": "100"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// generator makes up what a feed and a collector might report: few objects, many
// references, and all kinds of wrong statements about where an owner lives.
type generator struct {
	t       *rapid.T
	homes   []ownership.Object // the usual coordinates of each UID
	cycles  bool               // many objects in foreground deletion that block each other
	version int
}

var (
	randomKinds = []ownership.Kind{
		{Kind: "ConfigMap"}, {Group: "apps", Kind: "ReplicaSet"}, {Kind: "Node"}, {Group: "example.com", Kind: "Widget"},
	}
	randomVersions = []string{"v1", "apps/v1", "v1", "example.com/v1"} // by kind
	randomScopes   = []ownership.Scope{ownership.Namespaced, ownership.Namespaced, ownership.Cluster, ownership.ScopeUnknown}
)

func newGenerator(t *rapid.T) *generator {
	h := &generator{t: t}
	h.cycles = h.chance(25)
	for n := range 4 + h.intN(9) {
		o := ownership.Object{UID: ownership.UID(fmt.Sprintf("u%d", n))}
		if h.chance(30) { // also UIDs like the ones of servers
			o.UID = ownership.UID(fmt.Sprintf("%08x-0000-4000-8000-%012x", rapid.Uint32().Draw(t, "uid"), n))
		}
		kind := h.intN(len(randomKinds))
		o.Kind = randomKinds[kind]
		if randomScopes[kind] != ownership.Cluster {
			o.Namespace = h.pick("a", "a", "b")
		}
		o.Name = h.pick("x", "y", "z")
		h.homes = append(h.homes, o)
	}
	return h
}

func (h *generator) intN(n int) int { return histories.IntN(h.t, n) }

func (h *generator) chance(percent int) bool { return histories.Chance(h.t, percent) }

func (h *generator) pick(texts ...string) string { return histories.From(h.t, texts...) }

// phaseOf returns the phase of a generated object. It shares no code with
// ownership.PhaseOf, so that a mistake there does not hide itself.
func phaseOf(deleting bool, finalizers []string) ownership.Phase {
	if !deleting {
		return ownership.Active
	}
	if slices.Contains(finalizers, "orphan") {
		return ownership.Orphaning
	}
	if slices.Contains(finalizers, "foregroundDeletion") {
		return ownership.Foreground
	}
	return ownership.Terminating
}

// object returns an observation of one of the UIDs.
func (h *generator) object() ownership.Object {
	o := h.homes[h.intN(len(h.homes))]
	if h.chance(3) {
		other := h.homes[h.intN(len(h.homes))]
		o.Kind, o.Namespace, o.Name = other.Kind, other.Namespace, other.Name
	}
	o.ResourceVersion = h.next()
	deleting := h.chance(50)
	for _, f := range []string{ownership.FinalizerForeground, ownership.FinalizerOrphan, "example.com/mine"} {
		if h.chance(35) {
			o.Finalizers = append(o.Finalizers, f)
		}
	}
	if h.cycles && h.chance(80) {
		deleting, o.Finalizers = true, []string{ownership.FinalizerForeground}
	}
	o.Phase = phaseOf(deleting, o.Finalizers)
	for range h.intN(4) {
		o.Owners = append(o.Owners, h.reference())
	}
	return o
}

func (h *generator) reference() ownership.Reference {
	owner := h.homes[h.intN(len(h.homes))]
	kind := slices.Index(randomKinds, owner.Kind)
	if h.chance(10) {
		kind = h.intN(len(randomKinds))
	}
	if h.chance(10) {
		owner.Name = h.pick("x", "y", "z")
	}
	r := ownership.Reference{
		APIVersion: randomVersions[kind], Kind: randomKinds[kind].Kind, Name: owner.Name, UID: owner.UID,
		Controller: ownership.Flag(h.intN(3)), BlockOwnerDeletion: ownership.Flag(h.intN(3)),
	}
	if h.cycles && h.chance(80) {
		r.BlockOwnerDeletion = ownership.True
	}
	return r
}

func (h *generator) next() string {
	h.version++
	switch {
	case h.chance(5):
		return strconv.Itoa(h.intN(h.version)) // late
	case h.chance(2):
		return "odd" + strconv.Itoa(h.intN(3))
	}
	return strconv.Itoa(h.version)
}

// claim returns a current claim, mostly one that verdict wants to verify.
func (h *generator) claim(m *model) (ownership.Claim, bool) {
	var all, wanted []ownership.Claim
	for _, uid := range h.uids() {
		o := m.objects[uid]
		for _, r := range o.Owners {
			all = append(all, m.claim(o, r))
			if m.standing(o, r) == verdict.Unverified {
				wanted = append(wanted, m.claim(o, r))
			}
		}
	}
	if len(wanted) > 0 && h.chance(80) {
		all = wanted
	}
	if len(all) == 0 {
		return ownership.Claim{}, false
	}
	c := all[h.intN(len(all))]
	if h.chance(3) {
		c.Namespace = h.pick("", "a", "b")
	}
	return c, true
}

func (h *generator) uids() (uids []ownership.UID) {
	for _, home := range h.homes {
		uids = append(uids, home.UID)
	}
	return uids
}

func (h *generator) uid() ownership.UID { return h.homes[h.intN(len(h.homes))].UID }

// step makes one change to graph and model, and describes it.
func (h *generator) step(g *ownership.Graph, m *model) (what string, reconsider []ownership.UID) {
	switch n := h.intN(100); {
	case n < 50:
		o := h.object()
		m.observe(o)
		return fmt.Sprintf("observe %+v", o), g.Observe(o)
	case n < 54:
		o := h.object()
		m.refresh(o)
		return fmt.Sprintf("refresh %+v", o), g.Refresh(o)
	case n < 64:
		uid, version := h.uid(), h.next()
		m.forget(uid, version)
		return fmt.Sprintf("forget %s %s", uid, version), g.Forget(uid, version)
	case n < 68:
		uid := h.uid()
		m.vanish(uid)
		return "vanish " + string(uid), g.Vanish(uid)
	case n < 72:
		kind := randomKinds[h.intN(len(randomKinds))]
		var objects []ownership.Object
		for range h.intN(6) {
			if o := h.object(); o.Kind == kind || h.chance(5) {
				objects = append(objects, o)
			}
		}
		m.replace(kind, objects)
		return fmt.Sprintf("replace %s %+v", kind, objects), g.Replace(kind, objects)
	case n < 75:
		kind, scope := randomKinds[3], ownership.Scope(h.intN(3))
		if h.chance(20) {
			kind = randomKinds[h.intN(3)]
		}
		m.setScope(kind, scope)
		return fmt.Sprintf("scope %s %s", kind, scope), g.SetScope(kind, scope)
	case n < 77:
		m.newEpoch()
		return "epoch", g.NewEpoch()
	}
	c, ok := h.claim(m)
	if !ok {
		return "nothing", nil
	}
	p, phase := ownership.Presence(h.intN(3)), ownership.Phase(h.intN(4))
	m.resolve(c, p, phase)
	return fmt.Sprintf("resolve %s %s %s", c, p, phase), g.Resolve(c, p, phase)
}

// TestRandomHistories compares graph and verdict with the model after each step:
// every object and every decision. It also checks that every object whose decision
// now needs an action was returned, and the invariants of the graph.
func TestRandomHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, g, m := newGenerator(t), ownership.New(), newModel()
		for n, kind := range randomKinds {
			g.SetScope(kind, randomScopes[n])
			m.setScope(kind, randomScopes[n])
		}
		before := map[ownership.UID]string{}
		t.Repeat(map[string]func(*rapid.T){"step": func(t *rapid.T) {
			what, reconsider := h.step(g, m)
			t.Log(what)
			after, err := compare(g, m, h.uids())
			if err == nil {
				err = checkReconsidered(before, after, reconsider)
			}
			if err != nil {
				t.Fatalf("reconsider %v: %v", reconsider, err)
			}
			before = after
		}})
	})
}

// compare returns all decisions, or the difference between graph and model.
func compare(g *ownership.Graph, m *model, uids []ownership.UID) (map[ownership.UID]string, error) {
	if err := g.Check(); err != nil {
		return nil, err
	}
	if g.Len() != len(m.objects) || g.Stats().Answers != len(m.answers) {
		return nil, fmt.Errorf("graph: %+v, model: %d objects, %d answers", g.Stats(), len(m.objects), len(m.answers))
	}
	decisions := map[ownership.UID]string{}
	for _, uid := range uids {
		facts, ok := verdict.Gather(g, uid)
		want, wantOK := m.objects[uid]
		if ok != wantOK {
			return nil, fmt.Errorf("%s: observed: %t, want %t", uid, ok, wantOK)
		}
		if !ok {
			continue
		}
		if !reflect.DeepEqual(want, facts.Object) {
			return nil, fmt.Errorf("%s differs (-want +got):\n%s", uid, cmp.Diff(want, facts.Object))
		}
		decision := verdict.Decide(facts)
		if got, want := inShort(facts, decision), m.decide(want); got != want {
			return nil, fmt.Errorf("%s: got %q, want %q; facts: %+v", uid, got, want, facts)
		}
		if err := checkWrites(facts, decision); err != nil {
			return nil, err
		}
		decisions[uid] = inShort(facts, decision)
	}
	return decisions, nil
}

// checkReconsidered verifies that each object that a change concerns is reconsidered, and
// that the UIDs are sorted and unique.
func checkReconsidered(before, after map[ownership.UID]string, reconsider []ownership.UID) error {
	if !slices.IsSorted(reconsider) || len(slices.Compact(slices.Clone(reconsider))) != len(reconsider) {
		return fmt.Errorf("not sorted, or not each once")
	}
	for uid, decision := range after {
		if decision != before[uid] && decision != "keep" && !slices.Contains(reconsider, uid) {
			return fmt.Errorf("%s: was %q, is %q, but is not reconsidered", uid, before[uid], decision)
		}
	}
	for _, uid := range reconsider {
		if _, ok := after[uid]; !ok {
			return fmt.Errorf("%s is to be reconsidered, but not observed", uid)
		}
	}
	return nil
}

// TestDecisionsDoNotDependOnTheOrderOfEvents is R6 at large: the same objects, observed in any order, with live reads at any time,
// end in the same decisions. The events of each object keep their order; only their interleaving
// is random.
func TestDecisionsDoNotDependOnTheOrderOfEvents(t *testing.T) {
	const orders = 6
	rapid.Check(t, func(t *rapid.T) {
		h := newGenerator(t)
		lives := h.lives()
		var want map[ownership.UID]string
		for order := range orders {
			got, err := h.settle(lives)
			if err != nil {
				t.Fatalf("order %d: %v", order, err)
			}
			if want == nil {
				want = got
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("order %d: decisions differ from those of order 0 (-want +got):\n%s", order, diff)
			}
		}
	})
}

// life is the history of one UID: some observations, and maybe its end.
type life struct {
	observations []ownership.Object
	ends         bool
}

func (h *generator) lives() []life {
	lives := make([]life, len(h.homes))
	for n, home := range h.homes {
		l := &lives[n]
		for range 1 + h.intN(3) {
			o := h.object()
			o.UID, o.Kind, o.Namespace, o.Name = home.UID, home.Kind, home.Namespace, home.Name
			h.version++
			o.ResourceVersion = strconv.Itoa(h.version)
			l.observations = append(l.observations, o)
		}
		// The kind Widget is not served in this test, so widgets cannot be read. The end of a
		// widget would be known by its event in some orders, and never in others.
		l.ends = home.Kind != randomKinds[3] && h.chance(30)
	}
	for _, l := range lives {
		for n := range l.observations {
			o := &l.observations[n]
			o.Owners = slices.DeleteFunc(o.Owners, func(r ownership.Reference) bool {
				return r.Kind == randomKinds[3].Kind
			})
		}
	}
	return lives
}

// settle observes the lives in a random order, and answers the live reads that
// verdict requests: some on the way, and all at the end.
func (h *generator) settle(lives []life) (map[ownership.UID]string, error) {
	g := ownership.New()
	for n, kind := range randomKinds {
		g.SetScope(kind, randomScopes[n])
	}
	ended := map[ownership.UID]bool{}
	for _, l := range lives {
		ended[l.observations[0].UID] = l.ends
	}
	next := make([]int, len(lives))
	for _, n := range h.mix(lives) {
		l := lives[n]
		if next[n] < len(l.observations) {
			g.Observe(l.observations[next[n]])
		} else {
			g.Forget(l.observations[0].UID, "1000000")
		}
		next[n]++
		if h.chance(33) {
			verify(g, lives, ended)
		}
		if err := g.Check(); err != nil {
			return nil, err
		}
	}
	for round := 0; verify(g, lives, ended); round++ {
		if round == 100 {
			return nil, fmt.Errorf("verdict asks for live reads without end")
		}
	}
	// A claim may have been read for a decision that nobody makes in another order, such as one about an object that is
	// being deleted by now. The same knowledge has to lead to the same decisions.
	for o := range g.All() {
		for _, owner := range g.Owners(o.UID) {
			if owner.Presence == ownership.Unknown && owner.Obstacle == ownership.Verifiable {
				g.Resolve(owner.Claim, presenceIn(lives, ended, owner.Claim), ownership.Active)
			}
		}
	}
	decisions := map[ownership.UID]string{}
	for o := range g.All() {
		facts, _ := verdict.Gather(g, o.UID)
		decisions[o.UID] = inShort(facts, verdict.Decide(facts))
	}
	return decisions, nil
}

// mix returns a random order of steps: the index of each life, once for each of its steps.
func (h *generator) mix(lives []life) []int {
	var order []int
	for n, l := range lives {
		for range l.observations {
			order = append(order, n)
		}
		if l.ends {
			order = append(order, n)
		}
	}
	return rapid.Permutation(order).Draw(h.t, "order")
}

// verify answers the live reads that are requested now: an object exists at its
// coordinates, unless its life has ended. It reports whether there were any requests.
func verify(g *ownership.Graph, lives []life, ended map[ownership.UID]bool) (asked bool) {
	for o := range g.All() {
		facts, _ := verdict.Gather(g, o.UID)
		want, ok := verdict.Decide(facts).(verdict.Verify)
		if !ok {
			continue
		}
		asked = true
		for _, c := range want.Claims {
			g.Resolve(c, presenceIn(lives, ended, c), ownership.Active)
		}
	}
	return asked
}

// presenceIn returns the answer to a live read of a claim, after the lives.
func presenceIn(lives []life, ended map[ownership.UID]bool, c ownership.Claim) ownership.Presence {
	for _, l := range lives {
		home := l.observations[len(l.observations)-1]
		if home.UID == c.UID && !ended[c.UID] && home.Kind == c.Kind && home.Namespace == c.Namespace && home.Name == c.Name {
			return ownership.Present
		}
	}
	return ownership.Absent
}
