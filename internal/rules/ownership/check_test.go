package ownership

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestCheckFindsCorruption breaks a graph in every way that Check knows.
func TestCheckFindsCorruption(t *testing.T) {
	sound := func() *Graph {
		g := New()
		kind := Kind{Kind: "ConfigMap"}
		g.SetScope(kind, Namespaced)
		refer := func(uid UID, name string) Reference {
			return Reference{APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: uid, BlockOwnerDeletion: True}
		}
		for _, o := range []Object{
			{UID: "a", Name: "a", Phase: Foreground, Owners: []Reference{refer("b", "b")}, Finalizers: []string{FinalizerForeground}},
			{UID: "b", Name: "b", Phase: Foreground, Owners: []Reference{refer("a", "a"), refer("c", "c"), refer("c", "d")}},
			{UID: "d", Name: "d", Owners: []Reference{{APIVersion: "v1", Kind: "ConfigMap", Name: "a", UID: "a"}}},
		} {
			o.Kind, o.Namespace, o.ResourceVersion = kind, "default", "7"
			g.Observe(o)
		}
		g.Resolve(Claim{kind, "default", "c", "c"}, Absent, Active)
		return g
	}
	if err := sound().Check(); err != nil {
		t.Fatal(err)
	}
	at := func(g *Graph, uid UID) *entry { return g.entries.at(g.find(uid)) }
	claimOn := func(g *Graph, uid UID) *claim { return g.claims.at(at(g, uid).claims) }
	for want, corrupt := range map[string]func(g *Graph){
		"vacant entry":            func(g *Graph) { g.entries.at(g.entries.add()).name = 7 },
		"not found by its UID":    func(g *Graph) { g.byOddUID["a"] = g.find("b") },
		"placeholder":             func(g *Graph) { g.entryOf("nobody") },
		"but with coordinates":    func(g *Graph) { at(g, "c").version = revision{0, 3} },
		"objects are counted":     func(g *Graph) { g.objects++ },
		"stale objects":           func(g *Graph) { g.stale++ },
		"UIDs are indexed":        func(g *Graph) { g.byUUID.add(&[16]byte{1}, g.find("a")) },
		"which has none such":     func(g *Graph) { g.oddVersions[g.find("a")] = "x" },
		"holds a reference of":    func(g *Graph) { g.references.at(at(g, "a").references).dependent = 99 },
		"not observed, but with":  func(g *Graph) { at(g, "a").state = presumed },
		"from another namespace":  func(g *Graph) { claimOn(g, "a").namespace = 0 },
		"not among the claimants": func(g *Graph) { r := g.references.at(at(g, "d").references); g.references.at(r.next).prev = r.prev },
		"are reached":             func(g *Graph) { g.references.add() },
		"empty or not found":      func(g *Graph) { clear(g.laterClaims) },
		"of another claim":        func(g *Graph) { g.references.at(claimOn(g, "b").first).claim = at(g, "a").claims },
		"do not come first":       func(g *Graph) { c := claimOn(g, "a"); c.first = g.references.at(c.first).next },
		"claims are kept":         func(g *Graph) { g.claims.add() },
		"stale answer":            func(g *Graph) { g.answers[claimKey{owner: g.find("c"), name: "x"}] = answer{presence: Absent} },
		"facts of kinds":          func(g *Graph) { g.facts[1].objects++ },
		"kinds: ":                 func(g *Graph) { g.kinds.acquire(Kind{Kind: "ConfigMap"}) },
		"namespaces: ":            func(g *Graph) { g.namespaces.rows = append(g.namespaces.rows, row[string]{}) },
		"names are kept":          func(g *Graph) { g.names.add("nobody") },
		"uses, ":                  func(g *Graph) { g.names.share(&at(g, "a").name) },
		"cycle through":           func(g *Graph) { clear(g.cycles) },
		"but not known as such":   func(g *Graph) { c := *g.cycles[g.find("b")]; g.cycles[g.find("b")] = &c },
		"are known as such":       func(g *Graph) { g.cycles[g.find("d")] = &cycle{} },
		"were not returned":       func(g *Graph) { g.suspect(g.find("a")) },
		"continues at another":    func(g *Graph) { g.rest = []rest{{at(g, "a").claims, claimOn(g, "b").first, always}} },
	} {
		g := sound()
		corrupt(g)
		if err := g.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
}

// TestRandomHistoriesLeaveNothingBehind lets many objects appear, change and disappear at random. It looks for
// leftovers; the correctness of answers is tested with package verdict.
func TestRandomHistoriesLeaveNothingBehind(t *testing.T) {
	for seed := range uint64(8) {
		random := rand.New(rand.NewPCG(seed, 0))
		g := New()
		g.InPieces(int(seed % 3))
		kinds := []Kind{{Kind: "A"}, {Kind: "B"}, {Group: "g", Kind: "C"}}
		name := func() string {
			all := []string{"", "a", "service", "service-a", "service-a-b", "service-a-b-c", "service-b", strings.Repeat("service-", 50)}
			return all[random.IntN(len(all))]
		}
		uid := func() UID {
			n := random.IntN(60)
			if n%3 == 0 {
				return UID(fmt.Sprint("odd", n))
			}
			return formatUUID([16]byte{0: byte(n), 15: byte(n)})
		}
		reference := func() Reference {
			return Reference{
				APIVersion: []string{"v1", "v2", "g/v1"}[random.IntN(3)], Kind: []string{"A", "B", "C"}[random.IntN(3)],
				Name: name(), UID: uid(), BlockOwnerDeletion: Flag(random.IntN(3)),
			}
		}
		for step := range 1500 {
			r := reference()
			switch random.IntN(10) {
			case 0, 1:
				g.Forget(uid(), fmt.Sprint(step))
			case 2:
				g.Vanish(uid())
			case 3:
				g.SetScope(kinds[random.IntN(3)], Scope(random.IntN(3)))
			case 4:
				g.Resolve(Claim{r.OwnerKind(), "ns", r.Name, r.UID}, Presence(random.IntN(3)), Phase(random.IntN(4)))
			default:
				o := Object{
					UID: uid(), Kind: kinds[random.IntN(3)], Name: name(), Namespace: []string{"", "ns", "ns"}[random.IntN(3)],
					ResourceVersion: fmt.Sprint(step), Phase: Phase(random.IntN(4)),
				}
				for range random.IntN(4) {
					o.Owners = append(o.Owners, reference())
				}
				g.Observe(o)
			}
			if step%10 == 0 {
				if err := g.Check(); err != nil {
					t.Fatalf("seed %d, step %d: %v", seed, step, err)
				}
			}
		}
		for _, k := range kinds {
			g.SetScope(k, ScopeUnknown)
			g.Replace(k, nil)
		}
		if err := g.Check(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if got := g.Stats(); got != (Stats{}) || len(g.kinds.ids)+len(g.namespaces.ids)+len(g.versions.ids)+len(g.finalizers.ids) > 0 {
			t.Fatalf("seed %d: an empty graph holds %+v, kinds %v", seed, got, g.kinds.ids)
		}
	}
}
