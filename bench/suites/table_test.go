package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestFailuresOfBothSidesAreNoDifference: what fails on both sides, or with upstream's assets alone, is no difference.
func TestFailuresOfBothSidesAreNoDifference(t *testing.T) {
	theirs := measured{
		tests: outcomes{"p: good": passed, "p: known one": passed, "p: lost": passed, "p: new": passed, "p: bad": failed, "p: worse": failed},
		time:  2 * time.Second, memory: 300e6, controlPlane: 200e6,
	}
	own := measured{
		tests: outcomes{"p: good": passed, "p: known one": failed, "p: new": skipped, "p: bad": failed, "p: worse": passed},
		again: 1, time: time.Second, memory: 150e6, controlPlane: 50e6, files: 3,
	}
	text, unexplained := table(
		[]suite{{name: "theirs", kind: "an operator", omitted: "Its tests of the moon are left out.", explained: map[string]string{"known": "it asks for the moon"}}, {name: "absent"}},
		map[string]result{"theirs": {
			Suite: "theirs", Version: "v1", Packages: 1, Sides: [sides]figures{theirs.figures(), own.figures()}, Differences: differences(theirs.tests, own.tests),
		}})
	if unexplained != 2 {
		t.Errorf("%d differences are not explained, want 2", unexplained)
	}
	for _, want := range []string{
		"| theirs v1 | 1 | kube-apiserver | 4 | 2 | 0 | 0 | 2.0 | 300 | 200 | 0, 0 |\n",
		"| theirs v1 | 1 | coppice | 2 | 2 | 1 | 1 | 1.0 | 150 | 50 | 0, 3 |\n",
		"Its tests of the moon are left out.\n\nWith our assets alone",
		"Of 4 tests that pass with upstream's assets, 1 pass with ours.",
		"* `p: known one` fails: it asks for the moon\n* `p: lost` does not run: not explained\n* `p: new` is skipped: not explained\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "absent") {
		t.Error("a suite without a result is listed")
	}
	if strings.Contains(text, "p: worse") {
		t.Error("what passes with our assets alone is listed")
	}
}

func TestChoose(t *testing.T) {
	all := suites()
	if chosen, err := choose(all, nil); err != nil || len(chosen) != len(all) {
		t.Errorf("without names: %d suites, %v; want all", len(chosen), err)
	}
	if chosen, err := choose(all, []string{all[1].name}); err != nil || len(chosen) != 1 || chosen[0].name != all[1].name {
		t.Errorf("by name: %v, %v", chosen, err)
	}
	if _, err := choose(all, []string{"nobody's"}); err == nil {
		t.Error("a suite that is not there is chosen")
	}
}

// TestKeep: results of other suites stay in the table.
func TestKeep(t *testing.T) {
	c := config{output: t.TempDir()}
	for i, s := range suites()[:2] {
		if err := c.keep(result{Suite: s.name, Version: "v1", Sides: [sides]figures{{Passed: 7 + i}, {Passed: 7 + i}}}); err != nil {
			t.Fatal(err)
		}
		if err := c.write(); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(filepath.Join(c.output, tableFile))
	if err != nil {
		t.Fatal(err)
	}
	if want := "Of 15 tests that pass with upstream's assets, 15 pass with ours."; !strings.Contains(string(text), want) {
		t.Errorf("there is no %q in\n%s", want, text)
	}
	if err := c.keep(result{Suite: suites()[0].name, Differences: []difference{{"p: odd", "fails"}}}); err != nil {
		t.Fatal(err)
	}
	if err := c.write(); err == nil {
		t.Error("a difference without an explanation is accepted")
	}
}
