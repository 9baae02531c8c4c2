package conformance

import (
	"slices"

	"github.com/coppice-dev/coppice/internal/cli/conformance/probe"
)

// Outcome is the outcome of a check, or of all checks of a rule.
type Outcome string

// The outcomes.
const (
	Pass Outcome = "pass"
	Fail Outcome = "fail"
	// Accepted is the outcome of a check whose only failures are upstream's differences that
	// docs/semantics.md declares.
	Accepted Outcome = "declared"
	Skipped  Outcome = "skipped"
	// NotExercised is the outcome of a rule that no selected check tests.
	NotExercised Outcome = "not exercised"
)

// Report is the result of a run.
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

// RuleResult is the outcome of a rule, with the checks that test it.
type RuleResult struct {
	Rule

	Outcome Outcome `json:"outcome"`
	// Checks are the names of the checks, by outcome.
	Checks map[Outcome][]string `json:"checks,omitempty"`
}

// Result is the result of a check.
type Result struct {
	Name    string   `json:"name"`
	Rules   []string `json:"rules,omitempty"`
	Outcome Outcome  `json:"outcome"`
	Seconds float64  `json:"seconds"`
	// Reason is the reason why the check was skipped.
	Reason string `json:"reason,omitempty"`
	// Failures are messages with the wanted and the observed state.
	Failures []string   `json:"failures,omitempty"`
	Declared []Declared `json:"declared,omitempty"`
	// Log and Requests are the log and the last requests of a failed check.
	Log      []string        `json:"log,omitempty"`
	Requests []probe.Request `json:"requests,omitempty"`
}

// Declared is a difference from our rules that docs/semantics.md declares, and that a check observed.
type Declared struct {
	// Rules are the codes of the rules that differ.
	Rules []string `json:"rules"`
	// Ours is the sentence of the document, Upstream the other behaviour, and Seen the failures of the check.
	Ours     string `json:"ours"`
	Upstream string `json:"upstream"`
	Seen     string `json:"seen"`
}

// Failed reports whether a check has failed.
func (r Report) Failed() bool { return r.Counts[Fail] > 0 }

// sum adds the counts and the outcomes of the rules.
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

// outcomeFor returns the outcome of a check for one of its rules. It ignores declared differences
// from other rules.
func (r *Result) outcomeFor(rule string) Outcome {
	isAbout := func(d Declared) bool { return slices.Contains(d.Rules, rule) }
	if r.Outcome == Accepted && !slices.ContainsFunc(r.Declared, isAbout) {
		return Pass
	}
	return r.Outcome
}
