package simulation

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// traces reads the schedules of a directory below testdata.
func traces(t *testing.T, dir string) map[string]Schedule {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", dir, "*.trace"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no traces in %s: %v", dir, err)
	}
	schedules := make(map[string]Schedule)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		schedule, err := Parse(string(text))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		schedules[strings.TrimSuffix(filepath.Base(path), ".trace")] = schedule
	}
	return schedules
}

// TestTraces runs the schedules that once found a bug.
func TestTraces(t *testing.T) {
	for name, schedule := range traces(t, "traces") {
		t.Run(name, func(t *testing.T) {
			if result := Run(t.Context(), schedule, Options{History: true}); result.Violation != nil {
				t.Errorf("%s\n%s", result.Violation, result.History)
			}
		})
	}
}

// mishaps returns everything that can go wrong with a request.
func mishaps(uid Step) map[string][]Step {
	with := func(op Op, failure string) Step {
		uid.Op, uid.Failure = op, failure
		return uid
	}
	m := map[string][]Step{
		"crash before it arrives":         {{Op: Crash, Failure: "lost"}},
		"crash, and it arrives later":     {{Op: Crash}},
		"crash before the answer":         {with(Execute, ""), {Op: Crash}},
		"crash, and a stale list":         {with(Execute, ""), {Op: Crash, Stale: 1}},
		"crash after the answer":          {with(Answer, ""), {Op: Crash}},
		"the answer is lost":              {with(Lose, "")},
		"it times out, and comes later":   {with(Drop, "")},
		"it times out, and comes at once": {with(Drop, ""), {Op: Haunt}},
	}
	for _, failure := range failures() {
		m["answered "+failure] = []Step{with(Fail, failure)}
		m["answered "+failure+" twice"] = []Step{with(Fail, failure), {Op: Settle}}
	}
	return m
}

// TestMishaps lets each request of each scenario fail in every way. No invariant may be violated,
// and the same objects must be left as without the failure; except in a race, where a user and the
// collector write to the same object and the order decides the result.
func TestMishaps(t *testing.T) {
	points, runs := 0, 0
	for name, schedule := range traces(t, "scenarios") {
		for _, order := range []Order{Eager, Lazy} {
			unfolded, from := Unfold(t.Context(), schedule, order)
			want := survivors(t, name, unfolded)
			for at := from; at < len(unfolded.Steps); at++ {
				if unfolded.Steps[at].Op != Execute {
					continue
				}
				points++
				for mishap, steps := range mishaps(unfolded.Steps[at]) {
					runs++
					s := Schedule{Steps: slices.Concat(unfolded.Steps[:at], steps)}
					got := survivors(t, name+": "+mishap, s)
					if got != want && !strings.HasPrefix(name, "race-") {
						t.Errorf("%s: %s at step %d (%s): what is left differs\nwant %s\ngot  %s", name, mishap, at, unfolded.Steps[at], want, got)
					}
				}
			}
		}
	}
	t.Logf("%d requests of %d scenarios, %d runs", points, len(traces(t, "scenarios")), runs)
	if points < 200 || runs < 200*len(mishaps(Step{})) {
		t.Errorf("%d requests went wrong in %d runs: the scenarios have lost requests", points, runs)
	}
}

// TestLostEvents breaks a watch at every step of each scenario: events are lost and replaced by a
// list, which may be stale, or older than already observed events; or an event is repeated. The
// same objects must be left.
func TestLostEvents(t *testing.T) {
	runs := 0
	for name, schedule := range traces(t, "scenarios") {
		for _, order := range []Order{Eager, Lazy}[:max(1, scaled(2))] {
			unfolded, from := Unfold(t.Context(), schedule, order)
			want := survivors(t, name, unfolded)
			for at := from; at <= len(unfolded.Steps); at++ {
				for _, kind := range []string{pod, set, node, widget} {
					for _, step := range []Step{{Op: Relist}, {Op: Relist, Stale: 1}, {Op: Travel, Stale: 2}, {Op: Repeat}} {
						runs++
						step.Kind = kind
						got := survivors(t, name, Schedule{Steps: slices.Concat(unfolded.Steps[:at], []Step{step}, unfolded.Steps[at:])})
						if got != want && !strings.HasPrefix(name, "race-") {
							t.Errorf("%s: %s before step %d: what is left differs\nwant %s\ngot  %s", name, step, at, want, got)
						}
					}
				}
			}
		}
	}
	t.Logf("%d runs", runs)
	if runs < scaled(10_000) {
		t.Errorf("%d runs lost an event: the scenarios have lost steps", runs)
	}
}

// survivors runs a schedule and returns the remaining objects.
func survivors(t *testing.T, name string, s Schedule) string {
	t.Helper()
	result := Run(t.Context(), s, Options{Left: true})
	if result.Violation != nil {
		t.Fatalf("%s\n%s", name, Report(t.Context(), 0, result))
	}
	return result.Left
}
