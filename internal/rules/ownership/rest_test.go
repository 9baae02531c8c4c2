package ownership_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// A call about a crowded owner returns a piece of its dependents, and Rest the others, each once.
func TestDependentsOfACrowdedOwnerComeInPieces(t *testing.T) {
	const crowd, piece = 1000, 64
	g := newGraph(t)
	g.InPieces(piece)
	g.Observe(object("owner", 1))
	for n := range crowd {
		g.Observe(object(ownership.UID(fmt.Sprintf("pod-%04d", n)), 1, "owner"))
	}
	all := g.Forget("owner", "2")
	for more, calls := g.HasRest(), 1; more; calls++ {
		check(t, g)
		var uids []ownership.UID
		if uids, more = g.Rest(); len(uids) > piece {
			t.Fatalf("call %d returns %d objects", calls, len(uids))
		}
		all = append(all, uids...)
	}
	slices.Sort(all)
	if got := len(slices.Compact(slices.Clone(all))); got != crowd || len(all) != crowd {
		t.Errorf("%d objects, %d of them different; want %d", len(all), got, crowd)
	}
	if uids, more := g.Rest(); more || len(uids) > 0 {
		t.Errorf("at the end come %v", uids)
	}
}

// A graph in pieces returns the same objects as another one, whatever changes before Rest is called: at the latest when
// nothing is left, each of them that still needs an action.
func TestPiecesMissNothing(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 7))
		whole, pieces := newGraph(t), newGraph(t)
		pieces.InPieces(1 + random.IntN(3))
		owed := map[ownership.UID]bool{}
		settle := func(uids []ownership.UID) {
			for _, uid := range uids {
				delete(owed, uid)
			}
		}
		for step := range 400 {
			change := randomChange(random, step)
			for _, uid := range change(whole) {
				owed[uid] = true
			}
			settle(change(pieces))
			for random.IntN(3) == 0 {
				uids, _ := pieces.Rest()
				settle(uids)
			}
			if random.IntN(20) != 0 {
				continue
			}
			for more := true; more; {
				var uids []ownership.UID
				uids, more = pieces.Rest()
				settle(uids)
			}
			unsettled := ownership.All(viewOf(whole), (*ownership.Graph).Unsettled)
			for uid := range owed {
				if slices.Contains(unsettled, uid) {
					t.Fatalf("seed %d, step %d: %s was not returned", seed, step, uid)
				}
			}
			clear(owed)
			check(t, pieces)
		}
	}
}

// randomChange returns a change of a few owners with many dependents.
func randomChange(random *rand.Rand, step int) func(g *ownership.Graph) []ownership.UID {
	version := fmt.Sprint(step + 2)
	owner := ownership.UID(fmt.Sprint("owner-", random.IntN(3)))
	pod := ownership.UID(fmt.Sprint("pod-", random.IntN(30)))
	switch random.IntN(10) {
	case 0:
		return func(g *ownership.Graph) []ownership.UID { return g.Forget(owner, version) }
	case 1:
		return func(g *ownership.Graph) []ownership.UID { return g.Forget(pod, version) }
	case 2:
		o := foreground(owner, step+2)
		return func(g *ownership.Graph) []ownership.UID { return g.Observe(o) }
	case 3, 4:
		o := object(owner, step+2)
		return func(g *ownership.Graph) []ownership.UID { return g.Observe(o) }
	case 5:
		claim := ownership.Claim{Kind: object(owner, 1).Kind, Namespace: object(owner, 1).Namespace, Name: string(owner), UID: owner}
		presence := ownership.Presence(random.IntN(3))
		return func(g *ownership.Graph) []ownership.UID { return g.Resolve(claim, presence, ownership.Active) }
	case 6:
		return func(g *ownership.Graph) []ownership.UID { return g.Vanish(owner) }
	default:
		o := object(pod, step+2, owner)
		if random.IntN(2) == 0 {
			o.Owners[0].BlockOwnerDeletion = ownership.True
		}
		return func(g *ownership.Graph) []ownership.UID { return g.Observe(o) }
	}
}
