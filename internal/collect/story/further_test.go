package story

import (
	"math/rand/v2"
	"testing"
)

// Objects without an entry are found as in a map, whatever comes, goes and moves.
func TestFurtherMembersAreFoundAsInAMap(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		f, model := newFurtherMembers(), map[uint64]*story{}
		stories := []*story{{}, {}, {}, {}}
		added := []uint64{}
		for range 30_000 {
			switch s := stories[random.IntN(len(stories))]; random.IntN(6000) {
			case 0:
				f.drop(s)
				for hash, of := range model {
					if of == s {
						delete(model, hash)
					}
				}
			case 1:
				to := &story{}
				f.move(s, to)
				for hash, of := range model {
					if of == s {
						model[hash] = to
					}
				}
				stories = append(stories, to)
			default:
				hash := random.Uint64()
				f.add(hash, s)
				model[hash], added = s, append(added, hash)
			}
		}
		for _, hash := range added {
			if got := f.find(hash); got != model[hash] {
				t.Fatalf("seed %d: object %d has the story %p, want %p", seed, hash, got, model[hash])
			}
		}
		if f.len() != len(model) {
			t.Errorf("seed %d: %d objects, want %d", seed, f.len(), len(model))
		}
		for n := 1; n < len(f.runs); n++ {
			if longer, shorter := len(f.runs[n-1].hashes), len(f.runs[n].hashes); longer < shorter {
				t.Errorf("seed %d: a run of %d precedes one of %d", seed, longer, shorter)
			}
		}
	}
}
