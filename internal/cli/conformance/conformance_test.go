package conformance

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/cli/conformance/probe"
)

// TestOutcomesOfTrials: the outcomes of checks.
func TestOutcomesOfTrials(t *testing.T) {
	upstream := &probe.Server{Upstream: probe.Controllers}
	for name, test := range map[string]struct {
		check func(t probe.T)
		want  Outcome
		says  string
	}{
		"it passes":            {func(probe.T) {}, Pass, ""},
		"it fails and goes on": {func(t probe.T) { t.Errorf("one"); t.Error("two") }, Fail, "one two"},
		"it fails and ends":    {func(t probe.T) { t.Fatalf("one"); t.Error("two") }, Fail, "one"},
		"it is skipped":        {func(t probe.T) { t.Skip("the", " reason"); t.Error("two") }, Skipped, "the reason"},
		"it panics":            {func(probe.T) { panic("help") }, Fail, "the check panicked: help"},
		"a difference is met": {func(t probe.T) {
			probe.At(t, upstream, "").Differs(cyclesAreCut(), func(w *probe.Space) { w.T.Fatal("it hangs"); w.T.Error("two") })
		}, Accepted, "it hangs"},
		"a difference is not accepted": {func(t probe.T) {
			probe.At(t, upstream, "").Differs(firstDeleteRemoves(), func(w *probe.Space) { w.T.Fatal("it is there") })
		}, Fail, "it is there"},
		"a difference is met, and more is wrong": {func(t probe.T) {
			probe.At(t, upstream, "").Differs(cyclesAreCut(), func(w *probe.Space) { w.T.Error("it hangs") })
			t.Error("and fails")
		}, Fail, "and fails"},
		"a difference is not met": {func(t probe.T) {
			probe.At(t, upstream, "").Differs(cyclesAreCut(), func(*probe.Space) {})
		}, Pass, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var order []string
			trial := try(t.Context(), name, func(of probe.T) {
				for _, step := range []string{"first", "second"} {
					of.Cleanup(func() { order = append(order, step+" "+fmt.Sprint(of.Context().Err())) })
				}
				test.check(of)
			})
			got := trial.result(Check{Name: name, Rules: "R10 L2"})
			said := append(slices.Clone(got.Failures), got.Reason)
			for _, d := range got.Declared {
				if got.Outcome == Accepted {
					said = append(said, d.Seen)
				}
			}
			text := strings.TrimSpace(strings.Join(said, " "))
			if got.Outcome != test.want || !strings.HasPrefix(text, test.says) || test.says == "" && text != "" {
				t.Errorf("%s, and it says %q, want %s and %q", got.Outcome, text, test.want, test.says)
			}
			if want := "[second context canceled first context canceled]"; fmt.Sprint(order) != want {
				t.Errorf("cleaned up as %v, want %s", order, want)
			}
		})
	}
}

// TestRecordIsOfOneContext: a record keeps the requests of one context, and equal ones as one.
func TestRecordIsOfOneContext(t *testing.T) {
	var record probe.Record
	if got := record.Requests(); len(got) != 0 || record.With(t.Context()) == t.Context() {
		t.Errorf("an empty record has %v", got)
	}
	for request, want := range map[probe.Request]string{
		{Method: "GET", Path: "/a", Code: 200, Times: 3}:              "GET /a: 200 (3 times)",
		{Method: "DELETE", Path: "/a", Body: "{}", Code: 0, Times: 1}: "DELETE /a {}: 0",
	} {
		if got := request.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestChecksAreSelectedByNameAndRule: names and rules select, and turns without a check are left out.
func TestChecksAreSelectedByNameAndRule(t *testing.T) {
	names := func(s Selection) []string {
		var all []string
		for _, turn := range s.Select(Checks()) {
			if len(turn.Checks) == 0 {
				t.Error("a turn without checks")
			}
			for _, c := range turn.Checks {
				all = append(all, c.Name)
			}
		}
		return all
	}
	all := len(names(Selection{}))
	orphans, others := names(Selection{Run: regexp.MustCompile("^OR-")}), names(Selection{Skip: regexp.MustCompile("^OR-")})
	if len(orphans) == 0 || len(orphans)+len(others) != all {
		t.Errorf("%d and %d of %d", len(orphans), len(others), all)
	}
	for _, rule := range []string{"R22", "S8", "NS-06"} {
		got := names(Selection{Rules: []string{rule}})
		if len(got) == 0 || !slices.ContainsFunc(got, func(name string) bool { return strings.HasPrefix(name, "NS-06 ") }) {
			t.Errorf("%s selects %v", rule, got)
		}
	}
}

// TestRuleHasTheWorstOutcomeOfItsChecks: the outcome of a rule is the worst of its checks, and ignores differences from
// other rules.
func TestRuleHasTheWorstOutcomeOfItsChecks(t *testing.T) {
	declared := []Declared{{Rules: []string{"R10"}, Ours: "Ours.", Upstream: "theirs", Seen: "seen"}}
	r := Report{Server: "https://server", Version: "v1", Seconds: 1, Checks: []Result{
		{Name: "CY-01 a", Rules: []string{"R10", "R14"}, Outcome: Accepted, Declared: declared},
		{Name: "FG-01 b", Rules: []string{"R9"}, Outcome: Fail, Failures: []string{"want it\nto go"}, Requests: []probe.Request{{Method: "GET", Path: "/x", Code: 404, Times: 1}}},
		{Name: "FG-02 c", Rules: []string{"R9", "R14"}, Outcome: Pass},
		{Name: "H8 d", Rules: []string{"L5"}, Outcome: Skipped, Reason: "a reason"},
	}}
	r.sum()
	want := map[string]Outcome{"R9": Fail, "R10": Accepted, "R14": Pass, "L5": Skipped, "R1": NotExercised}
	for _, rule := range r.Rules {
		if outcome, ok := want[rule.Code]; ok && rule.Outcome != outcome {
			t.Errorf("%s: %s, want %s", rule.Code, rule.Outcome, outcome)
		}
		delete(want, rule.Code)
	}
	if len(want) > 0 || !r.Failed() {
		t.Errorf("not in the report: %v", want)
	}
	for format, words := range map[string][]string{
		"table": {"fail: FG-01 b (R9)\n    want it\n", "        GET /x: 404\n", "declared: CY-01 a", "    seen: seen\n", "skipped: a reason\n    H8 d\n", "1 fail, 1 pass", "4 checks in 1 s on https://server (v1): 1 passed, 1 failed, 1 declared, 1 skipped\n"},
		"json":  {`"outcome": "not exercised"`, `"upstream": "theirs"`},
		"yaml":  {"outcome: declared\n", "title: Foreground\n"},
		"junit": {`tests="4" failures="1" skipped="1"`, `<failure message="want it">`, `<skipped message="a reason">`},
	} {
		text, err := r.Encode(format)
		for _, word := range words {
			if err != nil || !strings.Contains(string(text), word) {
				t.Errorf("%s lacks %q: %v\n%s", format, word, err, text)
			}
		}
	}
	if text, err := r.Encode("table"); err != nil || strings.Index(string(text), "RULE ") > strings.Index(string(text), "fail: FG-01 b") {
		t.Errorf("the failures are not at the end: %v\n%s", err, text)
	}
	if _, err := r.Encode("poem"); err == nil {
		t.Error("there is a format poem")
	}
}

// TestInterruptedChecksEnd: no check waits for a condition after its context has ended.
func TestInterruptedChecksEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	trial := try(ctx, "late", func(of probe.T) {
		probe.At(of, &probe.Server{}, "").Until("nothing", func() string { return "it waits" })
	})
	if !trial.Failed() || !strings.HasPrefix(trial.failures[0], "interrupted") {
		t.Errorf("%v", trial.failures)
	}
}
