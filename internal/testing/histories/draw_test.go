package histories_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/coppice-dev/coppice/internal/testing/histories"
)

// Each number is about as frequent as the others, which is the purpose of the package.
func TestIntNIsEven(t *testing.T) {
	const n = 10
	var counts [n]int
	draws := 0
	rapid.Check(t, func(t *rapid.T) {
		for range 100 {
			draws++
			counts[histories.IntN(t, n)]++
		}
	})
	for number, count := range counts {
		if each := draws / n; count < each*8/10 || count > each*12/10 {
			t.Errorf("%d came %d times, want %d or so", number, count, each)
		}
	}
}

func TestChance(t *testing.T) {
	hits, draws := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		for range 100 {
			draws++
			if histories.Chance(t, 20) {
				hits++
			}
		}
	})
	if share := float64(hits) / float64(draws); share < 0.17 || share > 0.23 {
		t.Errorf("%.3f of %d draws, want 0.2", share, draws)
	}
}
