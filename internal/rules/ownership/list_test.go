package ownership_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/testing/histories"
)

// TestListInPartsIsTheSameAsAWholeOne compares graphs that get the same observations: one gets each list as a whole, the
// other one in parts, some of them after an attempt that has failed midway, and drops the missing objects in slices.
func TestListInPartsIsTheSameAsAWholeOne(t *testing.T) {
	secret := ownership.Kind{Kind: "Secret"}
	histories.Check(t, 300, 1, func(t *rapid.T) {
		whole, parts := ownership.New(), ownership.New()
		both := []*ownership.Graph{whole, parts}
		version := 0
		drawn := func() ownership.Object {
			version++
			o := object(ownership.UID(fmt.Sprint("o", histories.IntN(t, 6))), version, ownership.UID(fmt.Sprint("o", histories.IntN(t, 6))))
			if histories.Chance(t, 30) {
				o.Kind = secret
			}
			return o
		}
		for range histories.IntN(t, 12) {
			o := drawn()
			switch histories.IntN(t, 4) {
			case 0:
				for _, g := range both {
					g.Observe(o)
				}
			case 1:
				for _, g := range both {
					g.Forget(o.UID, o.ResourceVersion)
				}
			case 2:
				for _, g := range both {
					g.NewEpoch()
				}
			default:
				var objects []ownership.Object
				for range histories.IntN(t, 5) {
					if o := drawn(); o.Kind == configMap {
						objects = append(objects, o)
					}
				}
				whole.Replace(configMap, objects)
				listInParts(t, parts, objects)
			}
		}
		if diff := cmp.Diff(contents(whole), contents(parts)); diff != "" {
			t.Fatalf("the list as a whole and in parts (-whole +parts):\n%s", diff)
		}
		for _, g := range both {
			if err := g.Check(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// listInParts lists ConfigMaps.
func listInParts(t *rapid.T, g *ownership.Graph, objects []ownership.Object) {
	if len(objects) > 1 && histories.Chance(t, 30) {
		g.StartList(configMap)
		g.Listed(objects[:1])
	}
	g.StartList(configMap)
	for part := range slices.Chunk(objects, histories.IntN(t, 3)+1) {
		if histories.Chance(t, 50) {
			g.Load(part)
		} else {
			g.Listed(part)
		}
	}
	for at := (ownership.Cursor{}); !at.AtEnd(); {
		_, at = g.DropMissing(configMap, at)
	}
	g.EndList(configMap)
}

// contents returns the objects of a graph, and those that need an action.
func contents(g *ownership.Graph) map[string]any {
	found := map[string]any{}
	for o := range g.All() {
		found[string(o.UID)] = []any{o, g.Owners(o.UID)}
	}
	unsettled, _ := g.Unsettled(ownership.Cursor{})
	slices.Sort(unsettled)
	found["unsettled"] = unsettled
	return found
}

func TestManyListsThatFail(t *testing.T) {
	g := newGraph(t)
	all := []ownership.Object{object("a", 1), object("b", 2)}
	g.Replace(configMap, all)
	for range 3*math.MaxUint8 + 7 {
		g.StartList(configMap)
		g.Listed(all[:1])
		if err := g.Check(); err != nil {
			t.Fatal(err)
		}
	}
	if g.Len() != 2 {
		t.Error("a list that failed has dropped an object")
	}
	g.StartList(configMap)
	g.Listed(all[1:])
	g.EndList(configMap)
	if _, known := g.Object("a"); known || g.Len() != 1 {
		t.Error("an object of an earlier list is taken for one of this list")
	}
}

func TestMissingObjectsAreDroppedInPieces(t *testing.T) {
	g := newGraph(t)
	var all []ownership.Object
	for n := range 3 * ownership.Piece {
		all = append(all, object(ownership.UID(fmt.Sprint("o", n)), n+1))
	}
	g.Replace(configMap, all)
	g.StartList(configMap)
	g.Listed(all[:ownership.Piece])
	pieces := 0
	for at := (ownership.Cursor{}); !at.AtEnd(); pieces++ {
		_, at = g.DropMissing(configMap, at)
	}
	if g.Len() != ownership.Piece || pieces < 3 {
		t.Errorf("%d objects are left after %d pieces, want %d", g.Len(), pieces, ownership.Piece)
	}
}
