package verdict_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/coppice-dev/coppice/internal/ownership"
	"github.com/coppice-dev/coppice/internal/verdict"
)

var seeds = flag.Int("seeds", 120, "how many random histories to play in each test")

// history makes up what a feed and a collector might tell: few objects, many
// references, and all kinds of lies about where an owner lives.
type history struct {
	rand    *rand.Rand
	homes   []ownership.Object // where each UID lives, mostly
	circles bool               // many objects in foreground deletion that block each other
	version int
}

var (
	randomKinds = []ownership.Kind{
		{Kind: "ConfigMap"}, {Group: "apps", Kind: "ReplicaSet"}, {Kind: "Node"}, {Group: "example.com", Kind: "Widget"},
	}
	randomVersions = []string{"v1", "apps/v1", "v1", "example.com/v1"} // by kind
	randomScopes   = []ownership.Scope{ownership.Namespaced, ownership.Namespaced, ownership.Cluster, ownership.ScopeUnknown}
)

func newHistory(seed uint64) *history {
	h := &history{rand: rand.New(rand.NewPCG(seed, 0)), circles: seed%4 == 0}
	for n := range 4 + h.rand.IntN(9) {
		o := ownership.Object{UID: ownership.UID(fmt.Sprintf("u%d", n))}
		if h.chance(30) { // UIDs as they are in real life, too
			o.UID = ownership.UID(fmt.Sprintf("%08x-0000-4000-8000-%012x", h.rand.Uint32(), n))
		}
		kind := h.rand.IntN(len(randomKinds))
		o.Kind = randomKinds[kind]
		if randomScopes[kind] != ownership.Cluster {
			o.Namespace = h.pick("a", "a", "b")
		}
		o.Name = h.pick("x", "y", "z")
		h.homes = append(h.homes, o)
	}
	return h
}

func (h *history) chance(percent int) bool { return h.rand.IntN(100) < percent }

func (h *history) pick(texts ...string) string { return texts[h.rand.IntN(len(texts))] }

// object is an observation of one of the UIDs.
func (h *history) object() ownership.Object {
	o := h.homes[h.rand.IntN(len(h.homes))]
	if h.chance(3) {
		other := h.homes[h.rand.IntN(len(h.homes))]
		o.Kind, o.Namespace, o.Name = other.Kind, other.Namespace, other.Name
	}
	o.ResourceVersion = h.next()
	deleting := h.chance(50)
	for _, f := range []string{ownership.FinalizerForeground, ownership.FinalizerOrphan, "example.com/mine"} {
		if h.chance(35) {
			o.Finalizers = append(o.Finalizers, f)
		}
	}
	if h.circles && h.chance(80) {
		deleting, o.Finalizers = true, []string{ownership.FinalizerForeground}
	}
	o.Phase = ownership.PhaseOf(deleting, o.Finalizers)
	for range h.rand.IntN(4) {
		o.Owners = append(o.Owners, h.reference())
	}
	return o
}

func (h *history) reference() ownership.Reference {
	owner := h.homes[h.rand.IntN(len(h.homes))]
	kind := slices.Index(randomKinds, owner.Kind)
	if h.chance(10) {
		kind = h.rand.IntN(len(randomKinds))
	}
	if h.chance(10) {
		owner.Name = h.pick("x", "y", "z")
	}
	r := ownership.Reference{
		APIVersion: randomVersions[kind], Kind: randomKinds[kind].Kind, Name: owner.Name, UID: owner.UID,
		Controller: ownership.Flag(h.rand.IntN(3)), BlockOwnerDeletion: ownership.Flag(h.rand.IntN(3)),
	}
	if h.circles && h.chance(80) {
		r.BlockOwnerDeletion = ownership.True
	}
	return r
}

func (h *history) next() string {
	h.version++
	switch {
	case h.chance(5):
		return strconv.Itoa(h.rand.IntN(h.version)) // late
	case h.chance(2):
		return "odd" + strconv.Itoa(h.rand.IntN(3))
	}
	return strconv.Itoa(h.version)
}

// claim is one that is stated now, mostly one that verdict wants to know about.
func (h *history) claim(m *model) (ownership.Claim, bool) {
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
	c := all[h.rand.IntN(len(all))]
	if h.chance(3) {
		c.Namespace = h.pick("", "a", "b")
	}
	return c, true
}

func (h *history) uids() (uids []ownership.UID) {
	for _, home := range h.homes {
		uids = append(uids, home.UID)
	}
	return uids
}

func (h *history) uid() ownership.UID { return h.homes[h.rand.IntN(len(h.homes))].UID }

// step does one thing to graph and model, and says what.
func (h *history) step(g *ownership.Graph, m *model) (what string, reconsider []ownership.UID) {
	switch n := h.rand.IntN(100); {
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
		kind := randomKinds[h.rand.IntN(len(randomKinds))]
		var objects []ownership.Object
		for range h.rand.IntN(6) {
			if o := h.object(); o.Kind == kind || h.chance(5) {
				objects = append(objects, o)
			}
		}
		m.replace(kind, objects)
		return fmt.Sprintf("replace %s %+v", kind, objects), g.Replace(kind, objects)
	case n < 75:
		kind, scope := randomKinds[3], ownership.Scope(h.rand.IntN(3))
		if h.chance(20) {
			kind = randomKinds[h.rand.IntN(3)]
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
	p, phase := ownership.Presence(h.rand.IntN(3)), ownership.Phase(h.rand.IntN(4))
	m.resolve(c, p, phase)
	return fmt.Sprintf("resolve %s %s %s", c, p, phase), g.Resolve(c, p, phase)
}

// TestRandomHistories compares graph and verdict with the model after each step:
// every object, every decision; that each decision that has changed to one that
// wants something was among those to reconsider; and the invariants of the graph.
func TestRandomHistories(t *testing.T) {
	const steps = 100
	for seed := range uint64(*seeds) {
		h, g, m := newHistory(seed), ownership.New(), newModel()
		for n, kind := range randomKinds {
			g.SetScope(kind, randomScopes[n])
			m.setScope(kind, randomScopes[n])
		}
		before := map[ownership.UID]string{}
		var trace []string
		for range steps {
			what, reconsider := h.step(g, m)
			trace = append(trace, what)
			after, err := compare(g, m, h.uids())
			if err == nil {
				err = checkReconsidered(before, after, reconsider)
			}
			if err != nil {
				for _, line := range trace {
					t.Log(line)
				}
				t.Fatalf("seed %d, after step %d, reconsider %v: %v", seed, len(trace), reconsider, err)
			}
			before = after
		}
	}
}

// compare returns all decisions, or how the graph differs from the model.
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

// checkReconsidered verifies that whoever needs to hear of a change does, and
// that nobody is named twice or out of order.
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

// TestOrder is R6 at large: the same objects, observed in any order, with live
// reads at any time, end in the same decisions. What each object goes through
// keeps its order; what is shuffled is how they mix.
func TestOrder(t *testing.T) {
	const orders = 6
	for seed := range uint64(*seeds) {
		h := newHistory(seed)
		lives := h.lives()
		var want map[ownership.UID]string
		for order := range uint64(orders) {
			shuffle := rand.New(rand.NewPCG(seed, order))
			got, err := settle(lives, shuffle)
			if err != nil {
				t.Fatalf("seed %d, order %d: %v", seed, order, err)
			}
			if want == nil {
				want = got
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("seed %d, order %d: decisions differ from those of order 0 (-want +got):\n%s", seed, order, diff)
			}
		}
	}
}

// life is what one UID goes through: some observations, and maybe its end.
type life struct {
	observations []ownership.Object
	ends         bool
}

func (h *history) lives() []life {
	lives := make([]life, len(h.homes))
	for n, home := range h.homes {
		l := &lives[n]
		for range 1 + h.rand.IntN(3) {
			o := h.object()
			o.UID, o.Kind, o.Namespace, o.Name = home.UID, home.Kind, home.Namespace, home.Name
			h.version++
			o.ResourceVersion = strconv.Itoa(h.version)
			l.observations = append(l.observations, o)
		}
		// The kind Widget is not served in this test, so nobody can read one. Of
		// those that end, some orders would know by the event, and some never.
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

// settle plays the lives in a shuffled order, and answers what verdict wants to
// verify: now and then on the way, and everything at the end.
func settle(lives []life, shuffle *rand.Rand) (map[ownership.UID]string, error) {
	g := ownership.New()
	for n, kind := range randomKinds {
		g.SetScope(kind, randomScopes[n])
	}
	ended := map[ownership.UID]bool{}
	for _, l := range lives {
		ended[l.observations[0].UID] = l.ends
	}
	next := make([]int, len(lives))
	for _, n := range mix(lives, shuffle) {
		l := lives[n]
		if next[n] < len(l.observations) {
			g.Observe(l.observations[next[n]])
		} else {
			g.Forget(l.observations[0].UID, "1000000")
		}
		next[n]++
		if shuffle.IntN(3) == 0 {
			verify(g, lives, ended)
		}
		if err := g.Check(); err != nil {
			return nil, err
		}
	}
	for round := 0; verify(g, lives, ended); round++ {
		if round == 100 {
			return nil, fmt.Errorf("verdict never has enough of live reads")
		}
	}
	decisions := map[ownership.UID]string{}
	for o := range g.All() {
		facts, _ := verdict.Gather(g, o.UID)
		decisions[o.UID] = inShort(facts, verdict.Decide(facts))
	}
	return decisions, nil
}

// mix is an order of steps: the index of each life as often as it has steps.
func mix(lives []life, shuffle *rand.Rand) (order []int) {
	for n, l := range lives {
		for range l.observations {
			order = append(order, n)
		}
		if l.ends {
			order = append(order, n)
		}
	}
	shuffle.Shuffle(len(order), func(a, b int) { order[a], order[b] = order[b], order[a] })
	return order
}

// verify answers what is asked for now: an object stands at the place where it
// was born, unless it has ended. It returns whether anything was asked.
func verify(g *ownership.Graph, lives []life, ended map[ownership.UID]bool) (asked bool) {
	for o := range g.All() {
		facts, _ := verdict.Gather(g, o.UID)
		want, ok := verdict.Decide(facts).(verdict.Verify)
		if !ok {
			continue
		}
		asked = true
		for _, c := range want.Claims {
			presence := ownership.Absent
			for _, l := range lives {
				home := l.observations[len(l.observations)-1]
				if home.UID == c.UID && !ended[c.UID] && home.Kind == c.Kind && home.Namespace == c.Namespace && home.Name == c.Name {
					presence = ownership.Present
				}
			}
			g.Resolve(c, presence, ownership.Active)
		}
	}
	return asked
}
