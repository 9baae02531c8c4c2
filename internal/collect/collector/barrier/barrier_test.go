package barrier

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// R15: a few rounds begin at once, and then one in each period.
func TestR15_PaceOfRounds(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	p := newRhythm()
	for i := range roundsAtOnce {
		if d := p.next(now); d != 0 {
			t.Fatalf("round %d waits %v", i, d)
		}
	}
	// wait takes the next round, and lets the time pass that it waits.
	wait := func(want time.Duration) {
		t.Helper()
		d := p.next(now)
		if (d - want).Abs() > time.Microsecond {
			t.Errorf("the next round waits %v, want %v", d, want)
		}
		now = now.Add(d)
	}
	wait(shortestPeriod)
	now = now.Add(shortestPeriod / 4)
	wait(shortestPeriod * 3 / 4)
	now = now.Add(shortestPeriod)
	wait(0)
	wait(shortestPeriod)
	now = now.Add(time.Hour)
	begun := 0
	for p.next(now) == 0 {
		begun++
	}
	if begun != roundsAtOnce {
		t.Errorf("%d rounds at once after an hour, want %d", begun, roundsAtOnce)
	}
	now = now.Add(shortestPeriod) // for the round that had to wait
	for took, period := range map[time.Duration]time.Duration{
		time.Millisecond: shortestPeriod, 200 * time.Millisecond: 600 * time.Millisecond, time.Minute: longestPeriod,
	} {
		p.took(now, took)
		wait(period)
	}
}

// R15: after a round without lists that served one owner, as in a chain, the next one hardly waits; the more owners
// it served, or the longer it took, the more of them share the next.
func TestR15_RoundsWithoutListsFollowTheirOwners(t *testing.T) {
	for _, test := range []struct {
		took   time.Duration
		owners int
		want   time.Duration
	}{
		{0, 0, time.Millisecond},
		{time.Millisecond, 1, 2 * time.Millisecond},
		{time.Millisecond, 10, 10 * time.Millisecond},
		{time.Millisecond, 10_000, longestWithoutLists},
		{time.Second, 1, longestWithoutLists},
	} {
		now, p := time.Unix(1_700_000_000, 0), newRhythm()
		for range roundsAtOnce {
			p.next(now)
		}
		p.tookNoLists(now, test.took, test.owners)
		if d := p.next(now); (d - test.want).Abs() > time.Microsecond {
			t.Errorf("after a round of %v for %d owners the next one waits %v, want %v", test.took, test.owners, d, test.want)
		}
	}
}

// R15: a kind is listed once for all namespaces where that is cheaper, or may be.
func TestR15_SharedLists(t *testing.T) {
	few, many, pods := ownership.Kind{Kind: "Few"}, ownership.Kind{Kind: "Many"}, ownership.Kind{Kind: "Pod"}
	count := func(kind ownership.Kind) int { return map[ownership.Kind]int{few: 90, many: 3000}[kind] }
	batches := func(namespaces ...string) (batches []*batch) {
		for _, ns := range namespaces {
			batches = append(batches, &batch{namespace: ns, kinds: []ownership.Kind{few, many, pods}})
		}
		return batches
	}
	hundred := make([]string, 100)
	for i := range hundred {
		hundred[i] = string(rune('a' + i))
	}
	empty := listPlan{kind: pods, pages: 1}
	tests := map[string]struct {
		batches []*batch
		want    []listPlan
	}{
		"one namespace":           {batches("a"), nil},
		"one, and cluster-scoped": {batches("a", ""), nil},
		// Of many only one object, to see how far the watch has come.
		"two":                             {batches("a", "b"), []listPlan{{kind: few, pages: 1}, {kind: many, probe: true, pages: 1}, empty}},
		"a hundred":                       {batches(hundred...), []listPlan{{kind: few, pages: 1}, {kind: many, probe: true, pages: 13}, empty}},
		"two, and one of them needs less": {append(batches("a"), &batch{namespace: "b", kinds: []ownership.Kind{pods}}), []listPlan{empty}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, sharedLists(test.batches, count), cmp.AllowUnexported(listPlan{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
