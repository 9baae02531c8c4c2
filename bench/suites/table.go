package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/coppice-dev/coppice/bench/internal/report"
)

// result is what a suite has shown on both sides.
type result struct {
	suite    suite
	version  string
	packages int
	sides    [sides]measured
}

// difference is a test that passes with the assets of upstream, and not with ours.
type difference struct {
	name   string
	got    outcome
	reason string // empty if there is none
}

// differences returns those of a suite, sorted.
func (r result) differences() []difference {
	var all []difference
	for _, name := range slices.Sorted(maps.Keys(r.sides[upstream].tests)) {
		got := r.sides[ours].tests[name]
		if r.sides[upstream].tests[name] != passed || got == passed {
			continue
		}
		all = append(all, difference{name, got, r.suite.reason(name)})
	}
	return all
}

// reason returns why a test fails with our assets alone.
func (s suite) reason(name string) string {
	for prefix, reason := range s.explained {
		if strings.HasPrefix(name, prefix) {
			return reason
		}
	}
	return ""
}

const megabyte = 1e6

// table returns the comparison as Markdown, and how many differences have no explanation.
func table(machine report.Machine, results []result) (text string, unexplained int) {
	var out strings.Builder
	fmt.Fprintf(&out, `# Suites written elsewhere

Written by `+"`make suites`"+`; do not edit. Suites as their modules have them, with `+"`KUBEBUILDER_ASSETS`"+` once of
upstream and once of coppice. Measured on %s (%s, %d cores): %s;
%s.

Time and memory are those of the first run: the time is that of the test binaries, the memory the greatest sum of the
resident memory of all processes, and of kube-apiserver and etcd alone. A test that fails is run again; the column
"again" has those that then pass. Left are processes, and entries of TMPDIR.

| suite | packages | assets | passed | failed | skipped | again | s | MB | of these, control plane | left |
|---|---|---|---|---|---|---|---|---|---|---|
`, machine.Date, machine.Processor, machine.Cores, machine.Kubernetes, machine.Coppice)
	both, either := 0, 0
	for _, r := range results {
		for n, m := range r.sides {
			fmt.Fprintf(&out, "| %s %s | %d | %s | %d | %d | %d | %d | %.1f | %.0f | %.0f | %d, %d |\n", r.suite.name, r.version, r.packages, side(n),
				m.tests.count(passed), m.tests.count(failed), m.tests.count(skipped), m.again,
				m.time.Seconds(), float64(m.memory)/megabyte, float64(m.controlPlane)/megabyte, m.processes, m.files)
		}
		n := r.sides[upstream].tests.count(passed)
		either += n
		both += n - len(r.differences())
	}
	fmt.Fprintf(&out, "\nOf %d tests that pass with upstream's assets, %d pass with ours.\n", either, both)
	for _, r := range results {
		fmt.Fprintf(&out, "\n## %s\n\nIt is %s.\n", r.suite.name, r.suite.kind)
		differences := r.differences()
		if len(differences) == 0 {
			out.WriteString("What passes with upstream's assets passes with ours.\n")
			continue
		}
		out.WriteString("With our assets alone:\n\n")
		for _, d := range differences {
			if d.reason == "" {
				unexplained++
				d.reason = "not explained"
			}
			fmt.Fprintf(&out, "* `%s` %s: %s\n", d.name, d.got, d.reason)
		}
	}
	return out.String(), unexplained
}
