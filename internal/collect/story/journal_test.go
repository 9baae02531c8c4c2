package story

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A reader at any position gets the entries that have changed since, each once and in order, or is sent back to read all.
func TestJournalHasTheChangesSinceAPosition(t *testing.T) {
	const entries = 3
	random := rand.New(rand.NewPCG(1, 1))
	var j journal
	var all []int32
	known, behind := 0, 0
	for range 1000 {
		place := random.Int32N(entries)
		all = append(all, place)
		j.add(int(place), entries)
		if int(j.end()) != len(all) {
			t.Fatalf("the end is %d after %d changes", j.end(), len(all))
		}
		if len(j.places) > 4*entries+64 {
			t.Fatalf("%d places of %d entries are kept", len(j.places), entries)
		}
		since := 1 + random.IntN(len(all))
		want := slices.Clone(all[since:])
		slices.Sort(want)
		want = slices.Compact(want)
		switch places, isKnown := j.since(Position(since)); {
		case !isKnown:
			behind++
		case !slices.Equal(places, want):
			t.Fatalf("since %d of %d the places %v have changed, want %v", since, len(all), places, want)
		default:
			known++
		}
	}
	if known == 0 || behind == 0 {
		t.Errorf("%d positions were known, %d were too far behind", known, behind)
	}
	if _, isKnown := j.since(0); isKnown {
		t.Error("a reader at the beginning does not read all entries")
	}
	if places, isKnown := j.since(Position(5000)); !isKnown || len(places) > 0 {
		t.Errorf("after the end, %v have changed: %t", places, isKnown)
	}
}

func TestRateCountsTheLastFiveSeconds(t *testing.T) {
	var r rate
	for second := range 20 {
		for range 10 {
			r.add(start.Add(time.Duration(second) * time.Second))
		}
		if got, want := r.perSecond(start.Add(time.Duration(second)*time.Second)), min(10*float64(second+1)/rateWindow, 10); got != want {
			t.Errorf("after %d seconds the rate is %v, want %v", second, got, want)
		}
	}
	var rates []float64
	for _, later := range []time.Duration{20, 22, 24, 30} {
		rates = append(rates, r.perSecond(start.Add(later*time.Second)))
	}
	if got := fmt.Sprint(rates); got != "[8 4 0 0]" {
		t.Errorf("the rates after the last removal are %s", got)
	}
}

func TestMergedRateIsTheSum(t *testing.T) {
	var to, from rate
	to.add(start)
	from.add(start.Add(time.Second))
	from.add(start.Add(3 * time.Second))
	to.merge(&from, start.Add(3*time.Second))
	if got := to.perSecond(start.Add(3 * time.Second)); got != 3.0/rateWindow {
		t.Errorf("the rate is %v", got)
	}
	if got := to.perSecond(start.Add(6 * time.Second)); got != 1.0/rateWindow {
		t.Errorf("the rate of the last removal is %v", got)
	}
}
