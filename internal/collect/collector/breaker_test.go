package collector

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

var (
	pods  = ownership.Kind{Kind: "Pod"}
	start = time.Unix(1_700_000_000, 0)
)

// fixture is a breaker, and its clock.
type fixture struct {
	*breaker
	clock *clocktesting.FakePassiveClock
}

func newFixture(config Breaker) fixture {
	clock := clocktesting.NewFakePassiveClock(start)
	return fixture{newBreaker(config, clock), clock}
}

// allow asks for a permission, with that number of objects.
func (f fixture) allow(kind ownership.Kind, objects int) permission {
	return f.breaker.allow(kind, func(ownership.Kind) int { return objects })
}

// askTimes asks n times, and returns the number of granted deletions and the last answer.
func (f fixture) askTimes(n, objects int) (grants int, last permission) {
	for range n {
		if last = f.allow(pods, objects); last == granted {
			grants++
		}
	}
	return grants, last
}

func TestBreakerIsOffByDefault(t *testing.T) {
	f := newFixture(Breaker{})
	if got, last := f.askTimes(10000, 10000); got != 10000 || last != granted {
		t.Errorf("%d of 10000 granted, last %v", got, last)
	}
	if got := f.pauses(); len(got) != 0 {
		t.Errorf("paused: %v", got)
	}
}

func TestBreakerTripsOnceAndStays(t *testing.T) {
	f := newFixture(Breaker{Share: 0.1, Window: time.Minute, Min: 10})
	if got, last := f.askTimes(101, 1000); got != 100 || last != tripped {
		t.Fatalf("%d granted, then %v; want 100, then tripped", got, last)
	}
	if got := f.allow(ownership.Kind{Kind: "Service"}, 900); got != granted {
		t.Errorf("another kind: %v, want granted", got)
	}
	f.clock.SetTime(start.Add(time.Hour))
	if got := f.allow(pods, 900); got != denied {
		t.Errorf("an hour later: %v, want denied", got)
	}
	want := []report.Pause{{Kind: "Pod", Since: start, Deleted: 100, Objects: 1000}}
	if diff := cmp.Diff(want, f.pauses()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// The number of objects at the beginning of the window counts: its decrease by deletions
// does not make the breaker trip sooner.
func TestBreakerCountsFromTheBeginning(t *testing.T) {
	f := newFixture(Breaker{Share: 0.5, Window: time.Minute, Min: 1})
	for i := range 500 {
		f.clock.SetTime(start.Add(time.Duration(i) * 50 * time.Millisecond))
		if got := f.allow(pods, 1000-i); got != granted {
			t.Fatalf("deletion %d: %v", i, got)
		}
	}
	f.clock.SetTime(start.Add(25 * time.Second))
	if got := f.allow(pods, 500); got != tripped {
		t.Errorf("deletion 501: %v, want tripped", got)
	}
}

func TestBreakerWindowMoves(t *testing.T) {
	f := newFixture(Breaker{Share: 0.1, Window: 10 * time.Second, Min: 1})
	// 50 in each half minute are never more than 100 within ten seconds.
	for i := range 20 {
		f.clock.SetTime(start.Add(time.Duration(i) * 30 * time.Second))
		if got, last := f.askTimes(50, 1000); got != 50 {
			t.Fatalf("half minute %d: %d granted, then %v", i, got, last)
		}
	}
	now := start.Add(20 * 30 * time.Second)
	f.clock.SetTime(now)
	f.askTimes(60, 1000)
	f.clock.SetTime(now.Add(8 * time.Second))
	if got, last := f.askTimes(50, 940); got != 40 || last == granted {
		t.Errorf("%d granted within the window, then %v; want 40", got, last)
	}
}

func TestBreakerAllowsMin(t *testing.T) {
	f := newFixture(Breaker{Share: 0.1})
	if got, _ := f.askTimes(200, 20); got != 100 {
		t.Errorf("%d granted, want 100, the default of Min", got)
	}
}

func TestResumedBreakerCountsNothingForAWindow(t *testing.T) {
	f := newFixture(Breaker{Share: 0.1, Window: time.Minute, Min: 1})
	if f.resume(pods) {
		t.Error("resumed what was not paused")
	}
	f.askTimes(101, 1000)
	if !f.resume(pods) {
		t.Fatal("not resumed")
	}
	// Deletions are not counted for one window.
	f.clock.SetTime(start.Add(30 * time.Second))
	if got, last := f.askTimes(800, 900); got != 800 {
		t.Errorf("%d granted after the resume, then %v; want 800", got, last)
	}
	f.clock.SetTime(start.Add(2 * time.Minute))
	if got, _ := f.askTimes(100, 100); got != 10 {
		t.Errorf("%d granted a window later, want 10", got)
	}
}

func TestBreakerTakesPermissionsBack(t *testing.T) {
	f := newFixture(Breaker{Share: 0.1, Window: time.Minute, Min: 1})
	for range 1000 {
		if got := f.allow(pods, 1000); got != granted {
			t.Fatalf("%v, though no request was carried out", got)
		}
		f.giveBack(pods)
	}
	f.giveBack(pods) // more than was granted
	f.giveBack(ownership.Kind{Kind: "Service"})
	if got, _ := f.askTimes(101, 1000); got != 100 {
		t.Errorf("%d granted, want 100", got)
	}
}
