package collector

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/coppice-dev/coppice/internal/ownership"
)

var (
	pods  = ownership.Kind{Kind: "Pod"}
	start = time.Unix(1_700_000_000, 0)
)

// ask asks n times, and returns how many were granted and what the last answer was.
func (b *breaker) askTimes(n, objects int, now time.Time) (passed int, last permission) {
	for range n {
		if last = b.ask(pods, objects, now); last == granted {
			passed++
		}
	}
	return passed, last
}

func TestBreakerIsOffByDefault(t *testing.T) {
	b := newBreaker(Breaker{})
	if got, last := b.askTimes(10000, 10000, start); got != 10000 || last != granted {
		t.Errorf("%d of 10000 granted, last %v", got, last)
	}
	if got := b.pauses(); len(got) != 0 {
		t.Errorf("paused: %v", got)
	}
}

func TestBreakerTripsOnceAndStays(t *testing.T) {
	b := newBreaker(Breaker{Share: 0.1, Window: time.Minute, Min: 10})
	if got, last := b.askTimes(101, 1000, start); got != 100 || last != tripped {
		t.Fatalf("%d granted, then %v; want 100, then tripped", got, last)
	}
	if got := b.ask(pods, 900, start.Add(time.Hour)); got != refused {
		t.Errorf("an hour later: %v, want refused", got)
	}
	if got := b.ask(ownership.Kind{Kind: "Service"}, 900, start); got != granted {
		t.Errorf("another kind: %v, want granted", got)
	}
	want := []Pause{{Kind: "Pod", Since: start, Deleted: 100, Objects: 1000}}
	if diff := cmp.Diff(want, b.pauses()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// What counts is the number of objects at the beginning of the window: that it
// shrinks as they are deleted does not make the breaker trip sooner.
func TestBreakerCountsFromTheBeginning(t *testing.T) {
	b := newBreaker(Breaker{Share: 0.5, Window: time.Minute, Min: 1})
	for i := range 500 {
		if got := b.ask(pods, 1000-i, start.Add(time.Duration(i)*50*time.Millisecond)); got != granted {
			t.Fatalf("deletion %d: %v", i, got)
		}
	}
	if got := b.ask(pods, 500, start.Add(25*time.Second)); got != tripped {
		t.Errorf("deletion 501: %v, want tripped", got)
	}
}

func TestBreakerWindowMoves(t *testing.T) {
	b := newBreaker(Breaker{Share: 0.1, Window: 10 * time.Second, Min: 1})
	// 50 in each half minute never are more than 100 within ten seconds.
	for i := range 20 {
		if got, last := b.askTimes(50, 1000, start.Add(time.Duration(i)*30*time.Second)); got != 50 {
			t.Fatalf("round %d: %d granted, then %v", i, got, last)
		}
	}
	now := start.Add(20 * 30 * time.Second)
	b.askTimes(60, 1000, now)
	if got, last := b.askTimes(50, 940, now.Add(8*time.Second)); got != 40 || last == granted {
		t.Errorf("%d granted within the window, then %v; want 40", got, last)
	}
}

func TestBreakerLetsAFewPass(t *testing.T) {
	b := newBreaker(Breaker{Share: 0.1})
	if got, _ := b.askTimes(200, 20, start); got != 100 {
		t.Errorf("%d granted, want 100, the default of Min", got)
	}
}

func TestBreakerResumes(t *testing.T) {
	b := newBreaker(Breaker{Share: 0.1, Window: time.Minute, Min: 1})
	if b.resume(pods, start) {
		t.Error("resumed what was not paused")
	}
	b.askTimes(101, 1000, start)
	if !b.resume(pods, start) {
		t.Fatal("not resumed")
	}
	// Whoever has resumed has seen what there is to delete.
	if got, last := b.askTimes(800, 900, start.Add(30*time.Second)); got != 800 {
		t.Errorf("%d granted after the resume, then %v; want 800", got, last)
	}
	if got, _ := b.askTimes(100, 100, start.Add(2*time.Minute)); got != 10 {
		t.Errorf("%d granted a window later, want 10", got)
	}
}

func TestBreakerTakesPermissionsBack(t *testing.T) {
	b := newBreaker(Breaker{Share: 0.1, Window: time.Minute, Min: 1})
	for range 1000 {
		if got := b.ask(pods, 1000, start); got != granted {
			t.Fatalf("%v, though no request was carried out", got)
		}
		b.giveBack(pods, start)
	}
	b.giveBack(pods, start) // more than was taken
	b.giveBack(ownership.Kind{Kind: "Service"}, start)
	if got, _ := b.askTimes(101, 1000, start); got != 100 {
		t.Errorf("%d granted, want 100", got)
	}
}

// R15: rounds begin at once when there were few, and in their rhythm when there are many.
func TestR15RhythmOfRounds(t *testing.T) {
	var r rhythm
	now := start
	for i := range roundsAtOnce {
		if d := r.begin(now); d != 0 {
			t.Fatalf("round %d waits %v", i, d)
		}
	}
	if d := r.begin(now); d != shortestRound {
		t.Errorf("the next round waits %v, want %v", d, shortestRound)
	}
	now = now.Add(shortestRound / 4)
	if d := r.begin(now); d != shortestRound*3/4 {
		t.Errorf("a bit later it waits %v, want %v", d, shortestRound*3/4)
	}
	now = now.Add(shortestRound * 3 / 4)
	if d := r.begin(now); d != 0 {
		t.Errorf("after a period it waits %v", d)
	}
	if d := r.begin(now); d == 0 {
		t.Error("two rounds in one period")
	}
	now = now.Add(time.Hour)
	begun := 0
	for r.begin(now) == 0 {
		begun++
	}
	if begun != roundsAtOnce {
		t.Errorf("%d rounds at once after an hour, want %d", begun, roundsAtOnce)
	}
	for took, period := range map[time.Duration]time.Duration{
		time.Millisecond: shortestRound, 200 * time.Millisecond: 600 * time.Millisecond, time.Minute: longestRound,
	} {
		r.took(took)
		if d := r.begin(now); d != period {
			t.Errorf("after a round of %v the next waits %v, want %v", took, d, period)
		}
	}
}

// R15: a kind is listed once for all namespaces where that is cheaper, or may be.
func TestR15SharedLists(t *testing.T) {
	few, many := ownership.Kind{Kind: "Few"}, ownership.Kind{Kind: "Many"}
	count := func(kind ownership.Kind) int { return map[ownership.Kind]int{few: 90, many: 3000}[kind] }
	turns := func(namespaces ...string) (turns []*turn) {
		for _, ns := range namespaces {
			turns = append(turns, &turn{namespace: ns, kinds: []ownership.Kind{few, many, pods}})
		}
		return turns
	}
	hundred := make([]string, 100)
	for i := range hundred {
		hundred[i] = string(rune('a' + i))
	}
	empty := listPlan{kind: pods, pages: 1}
	tests := map[string]struct {
		turns []*turn
		want  []listPlan
	}{
		"one namespace":           {turns("a"), nil},
		"one, and cluster-scoped": {turns("a", ""), nil},
		// Of many only one object, to see how far the watch has come.
		"two":                             {turns("a", "b"), []listPlan{{kind: few, pages: 1}, {kind: many, probe: true, pages: 1}, empty}},
		"a hundred":                       {turns(hundred...), []listPlan{{kind: few, pages: 1}, {kind: many, probe: true, pages: 13}, empty}},
		"two, and one of them needs less": {append(turns("a"), &turn{namespace: "b", kinds: []ownership.Kind{pods}}), []listPlan{empty}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, sharedLists(test.turns, count), cmp.AllowUnexported(listPlan{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
