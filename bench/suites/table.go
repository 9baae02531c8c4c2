package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/coppice-dev/coppice/bench/internal/report"
)

// result is the result of a suite on both sides.
type result struct {
	Suite       string         `json:"suite"`
	Version     string         `json:"version"`
	Packages    int            `json:"packages"`
	Machine     report.Machine `json:"machine"`
	Sides       [sides]figures `json:"sides"`
	Differences []difference   `json:"differences,omitempty"`
}

// figures are the figures of one side.
type figures struct {
	Passed  int     `json:"passed"`
	Failed  int     `json:"failed"`
	Skipped int     `json:"skipped"`
	Again   int     `json:"again"`
	Seconds float64 `json:"seconds"`
	// MB and ControlPlaneMB are the peaks of the total resident memory of all processes and of the control
	// plane's processes.
	MB             float64 `json:"mb"`
	ControlPlaneMB float64 `json:"controlPlaneMB"`
	// LeftProcesses and LeftFiles count the processes and files that a run left behind.
	LeftProcesses int `json:"leftProcesses"`
	LeftFiles     int `json:"leftFiles"`
}

// difference is a test that passes only with upstream's assets.
type difference struct {
	Test string `json:"test"`
	Ours string `json:"ours"`
}

// figures returns the figures of a run.
func (m measured) figures() figures {
	return figures{
		Passed: m.tests.count(passed), Failed: m.tests.count(failed), Skipped: m.tests.count(skipped), Again: m.again,
		Seconds: m.time.Seconds(), MB: float64(m.memory) / megabyte, ControlPlaneMB: float64(m.controlPlane) / megabyte,
		LeftProcesses: m.processes, LeftFiles: m.files,
	}
}

// differences returns the tests that pass only with upstream's assets, sorted.
func differences(theirs, own outcomes) []difference {
	var all []difference
	for _, name := range slices.Sorted(maps.Keys(theirs)) {
		if got := own[name]; theirs[name] == passed && got != passed {
			all = append(all, difference{name, got.String()})
		}
	}
	return all
}

// reason returns the reason why a test fails only with our assets, or "" if it is not known.
func (s suite) reason(name string) string {
	for part, reason := range s.explained {
		if strings.Contains(name, part) {
			return reason
		}
	}
	return ""
}

const megabyte = 1e6

// table returns the comparison as Markdown, and the number of differences without an explanation. Suites
// without a result are left out.
func table(all []suite, results map[string]result) (text string, unexplained int) {
	var rows, notes strings.Builder
	both, either := 0, 0
	for _, s := range all {
		r, ok := results[s.name]
		if !ok {
			continue
		}
		for n, f := range r.Sides {
			fmt.Fprintf(&rows, "| %s %s | %d | %s | %d | %d | %d | %d | %.1f | %.0f | %.0f | %d, %d |\n", r.Suite, r.Version, r.Packages, side(n),
				f.Passed, f.Failed, f.Skipped, f.Again, f.Seconds, f.MB, f.ControlPlaneMB, f.LeftProcesses, f.LeftFiles)
		}
		either += r.Sides[upstream].Passed
		both += r.Sides[upstream].Passed - len(r.Differences)
		unexplained += s.describe(&notes, r)
	}
	return fmt.Sprintf(head, rows.String(), either, both) + notes.String(), unexplained
}

const head = `# Suites written elsewhere

Written by ` + "`make suites`" + `; do not edit. Suites as their modules have them, with ` + "`KUBEBUILDER_ASSETS`" + ` once of
upstream and once of coppice.

Time and memory are those of the first run: the time is that of the test binaries, the memory the greatest sum of the
resident memory of all processes in MB of 10⁶ bytes, and of kube-apiserver and etcd alone. A test that fails is run
again; the column "again" has those that then pass. Left are processes, and entries of TMPDIR.
Other work on the machine makes the times longer: those of two runs cannot be compared.

| suite | packages | assets | passed | failed | skipped | again | s | MB | control plane, MB | left |
|---|---|---|---|---|---|---|---|---|---|---|
%s
Of %d tests that pass with upstream's assets, %d pass with ours.
`

// describe writes the description of a suite, the machine, and the differences. It returns the number
// of differences without an explanation.
func (s suite) describe(out *strings.Builder, r result) (unexplained int) {
	m := r.Machine
	fmt.Fprintf(out, "\n## %s\n\nIt is %s.\nRun on %s (%s, %d cores)\nwith %s and\n%s.\n\n", s.name, s.kind, m.Date, m.Processor, m.Cores, m.Kubernetes, m.Coppice)
	if s.omitted != "" {
		out.WriteString(report.Wrap(s.omitted, "") + "\n\n")
	}
	if len(r.Differences) == 0 {
		out.WriteString("What passes with upstream's assets passes with ours.\n")
		return 0
	}
	out.WriteString("With our assets alone:\n\n")
	for _, d := range r.Differences {
		reason := s.reason(d.Test)
		if reason == "" {
			unexplained++
			reason = "not explained"
		}
		out.WriteString(report.Wrap(fmt.Sprintf("* `%s` %s: %s", d.Test, d.Ours, reason), "  ") + "\n")
	}
	return unexplained
}
