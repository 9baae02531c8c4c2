package simulation

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestReplayIsIdentical runs schedules again and again: from the seed, from the
// steps, and from their text. The histories must agree to the letter.
func TestReplayIsIdentical(t *testing.T) {
	replays := 0
	for seed := uint64(1); seed <= 10; seed++ {
		first := Random(t.Context(), seed*101, DefaultSteps, Options{History: true})
		parsed, err := Parse(first.Schedule.String())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(first.Schedule, parsed); diff != "" {
			t.Fatalf("schedule and its text differ:\n%s", diff)
		}
		for range scaled(100) {
			replays += 3
			for name, again := range map[string]Result{
				"the seed":  Random(t.Context(), seed*101, DefaultSteps, Options{History: true}),
				"the steps": Run(t.Context(), first.Schedule, Options{History: true}),
				"the text":  Run(t.Context(), parsed, Options{History: true}),
			} {
				if again.History != first.History {
					t.Fatalf("seed %d, replayed from %s, is another history:\n%s", seed*101, name, cmp.Diff(first.History, again.History))
				}
			}
		}
	}
	t.Logf("%d replays", replays)
}

// TestShrink checks that a failing schedule is reduced to the steps that it needs to fail, and
// always to the same ones.
func TestShrink(t *testing.T) {
	// The test uses a rule that is never broken: an object named n0 was deleted.
	broken := func(s Schedule) bool {
		return slices.ContainsFunc(s.Steps, func(s Step) bool { return s.Op == Delete && s.Ref.Name == "n0" }) &&
			slices.ContainsFunc(s.Steps, func(s Step) bool { return s.Op == Crash })
	}
	shrunk := 0
	for seed := uint64(1); shrunk < 20; seed++ {
		found := Random(t.Context(), seed, DefaultSteps, Options{})
		if !broken(found.Schedule) {
			continue
		}
		shrunk++
		shrink := func() Schedule {
			s := &shrinker{best: found.Schedule, fails: func(s Schedule) (Schedule, bool) {
				applied := Run(t.Context(), s, Options{}).Schedule
				return applied, broken(applied)
			}}
			return s.shrink()
		}
		// An object must be created to be deleted.
		best := shrink()
		if !broken(best) || len(best.Steps) != 3 {
			t.Errorf("seed %d: shrunk to\n%s", seed, best)
		}
		if diff := cmp.Diff(best, shrink()); diff != "" {
			t.Errorf("seed %d: shrunk in two ways:\n%s", seed, diff)
		}
	}
}

func TestParseRejects(t *testing.T) {
	for _, text := range []string{"create a/Pod #1", "collect #x", "create a/Pod/x #1 owners=Pod#1", "relist stale=x", "crash what=x", "own a/Pod/x owners=Pod/y"} {
		if s, err := Parse(text); err == nil {
			t.Errorf("%q is read as %q", text, s)
		}
	}
}
