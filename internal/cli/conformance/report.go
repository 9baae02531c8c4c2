package conformance

import (
	"slices"

	"github.com/coppice-dev/coppice/internal/cli/conformance/probe"
)

// Outcome is what became of a check, or of all checks of a rule.
type Outcome string

// The outcomes.
const (
	Pass Outcome = "pass"
	Fail Outcome = "fail"
	// Accepted is the outcome where upstream's behaviour was met instead of ours, which
	// docs/semantics.md declares, and nothing else is wrong.
	Accepted Outcome = "declared"
	Skipped  Outcome = "skipped"
	// NotExercised is the outcome of a rule that no selected check stands for.
	NotExercised Outcome = "not exercised"
)

// Report is what a run has found.
type Report struct {
	Server  string  `json:"server"`
	Version string  `json:"version"`
	Seconds float64 `json:"seconds"`
	// Counts are the numbers of checks by their outcome.
	Counts map[Outcome]int `json:"counts"`
	Rules  []RuleResult    `json:"rules"`
	Checks []Result        `json:"checks"`
	// Left are the namespaces of the run that could not be removed.
	Left []string `json:"left,omitempty"`
}

// RuleResult is what became of the checks that stand for a rule.
type RuleResult struct {
	Rule

	Outcome Outcome `json:"outcome"`
	// Checks are the names of the checks, by outcome.
	Checks map[Outcome][]string `json:"checks,omitempty"`
}

// Result is what became of a check.
type Result struct {
	Name    string   `json:"name"`
	Rules   []string `json:"rules,omitempty"`
	Outcome Outcome  `json:"outcome"`
	Seconds float64  `json:"seconds"`
	// Reason says why the check was skipped.
	Reason string `json:"reason,omitempty"`
	// Failures say what was wanted, and what was seen.
	Failures []string   `json:"failures,omitempty"`
	Declared []Declared `json:"declared,omitempty"`
	// Log and Requests are those of a check that failed; of the requests the last ones.
	Log      []string        `json:"log,omitempty"`
	Requests []probe.Request `json:"requests,omitempty"`
}

// Declared is a difference from our rules that docs/semantics.md declares, and that was met.
type Declared struct {
	// Rules are those that it is about.
	Rules []string `json:"rules"`
	// Ours is the sentence of the document, Upstream what is done instead, and Seen how it showed.
	Ours     string `json:"ours"`
	Upstream string `json:"upstream"`
	Seen     string `json:"seen"`
}

// Failed reports whether a check has failed.
func (r Report) Failed() bool { return r.Counts[Fail] > 0 }

// sum adds what follows from the results of the checks.
func (r *Report) sum() {
	r.Counts = map[Outcome]int{}
	for i := range r.Checks {
		r.Counts[r.Checks[i].Outcome]++
	}
	for _, rule := range Rules() {
		one := RuleResult{Rule: rule, Checks: map[Outcome][]string{}}
		for i := range r.Checks {
			if c := &r.Checks[i]; slices.Contains(c.Rules, rule.Code) {
				outcome := c.outcomeFor(rule.Code)
				one.Checks[outcome] = append(one.Checks[outcome], c.Name)
			}
		}
		one.Outcome = NotExercised
		for _, worst := range []Outcome{Fail, Accepted, Pass, Skipped} {
			if len(one.Checks[worst]) > 0 {
				one.Outcome = worst
				break
			}
		}
		r.Rules = append(r.Rules, one)
	}
}

// outcomeFor returns what a check says about one of its rules: a difference about other rules is
// none about this one.
func (r *Result) outcomeFor(rule string) Outcome {
	isAbout := func(d Declared) bool { return slices.Contains(d.Rules, rule) }
	if r.Outcome == Accepted && !slices.ContainsFunc(r.Declared, isAbout) {
		return Pass
	}
	return r.Outcome
}
