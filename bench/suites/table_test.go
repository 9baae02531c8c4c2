package main

import (
	"strings"
	"testing"
	"time"

	"github.com/coppice-dev/coppice/bench/internal/report"
)

// TestTable: what fails on both sides, or with upstream's assets alone, is no difference.
func TestTable(t *testing.T) {
	r := result{suite: suite{name: "theirs", kind: "an operator", explained: map[string]string{"p: known": "it asks for the moon"}}, version: "v1", packages: 1}
	r.sides[upstream] = measured{
		tests: outcomes{"p: good": passed, "p: known one": passed, "p: lost": passed, "p: new": passed, "p: bad": failed, "p: worse": failed},
		time:  2 * time.Second, memory: 300e6, controlPlane: 200e6,
	}
	r.sides[ours] = measured{
		tests: outcomes{"p: good": passed, "p: known one": failed, "p: new": skipped, "p: bad": failed, "p: worse": passed},
		again: 1, time: time.Second, memory: 150e6, controlPlane: 50e6, files: 3,
	}
	text, unexplained := table(report.Machine{}, []result{r})
	if unexplained != 2 {
		t.Errorf("%d differences are not explained, want 2", unexplained)
	}
	for _, want := range []string{
		"| theirs v1 | 1 | kube-apiserver | 4 | 2 | 0 | 0 | 2.0 | 300 | 200 | 0, 0 |\n",
		"| theirs v1 | 1 | coppice | 2 | 2 | 1 | 1 | 1.0 | 150 | 50 | 0, 3 |\n",
		"Of 4 tests that pass with upstream's assets, 1 pass with ours.",
		"* `p: known one` fails: it asks for the moon\n* `p: lost` does not run: not explained\n* `p: new` is skipped: not explained\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in\n%s", want, text)
		}
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
