package explain_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/explain"
)

// TestPlantedFaultIsFound replays the files in testdata. Each command is a cluster, described in lines as at
// cluster.line, and an object in it:
//
//	explain <Kind>.<group> [<namespace>/]<name> state=<State> leaf=<On>[:<finalizer or object>]
//
// The state and the leaf are the planted fault, and are checked apart from the output. In files whose names begin
// with "slow", no wait may be called stuck.
func TestPlantedFaultIsFound(t *testing.T) {
	counts := map[string]int{}
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		file := filepath.Base(path)
		if strings.HasSuffix(file, ".fail") {
			return // a case that a random test has kept
		}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			t.Helper()
			w := newCluster(t)
			for line := range strings.Lines(d.Input) {
				if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
					w.line(strings.Fields(line))
				}
			}
			x := w.explain(ownership.UID(uidOf(d.CmdArgs[0].Key, nameOnly(d.CmdArgs[1].Key))))
			counts[file]++
			checkPlanted(t, d, &x)
			if strings.HasPrefix(file, "slow") {
				for _, leaf := range x.Leaves() {
					if leaf.State == explain.Stuck {
						t.Errorf("%s: alive and called stuck: %s", d.Pos, leaf.Says)
					}
				}
			}
			return x.Text(now)
		})
	})
	for file, least := range map[string]int{"uninstalled": 12, "stuck": 18, "slow": 30} {
		if counts[file] < least {
			t.Errorf("testdata/%s has %d scenarios, want at least %d", file, counts[file], least)
		}
	}
}

// checkPlanted compares an explanation's state and worst leaf with the planted ones.
func checkPlanted(t *testing.T, d *datadriven.TestData, x *explain.Explanation) {
	t.Helper()
	for _, arg := range d.CmdArgs[2:] {
		switch arg.Key {
		case "state":
			if string(x.State) != arg.Vals[0] {
				t.Errorf("%s: is %s, want %s", d.Pos, x.State, arg.Vals[0])
			}
		case "leaf":
			leaf := x.Leaves()[0]
			got := []string{string(leaf.On), fmt.Sprintf("%s:%s", leaf.On, leaf.Finalizer)}
			if leaf.Object != nil {
				got = append(got, fmt.Sprintf("%s:%s", leaf.On, leaf.Object.Name))
			}
			if !strings.Contains(" "+strings.Join(got, " ")+" ", " "+arg.Vals[0]+" ") {
				t.Errorf("%s: the leaf is %v, want %s", d.Pos, got, arg.Vals[0])
			}
		default:
			t.Fatalf("%s: unknown argument %s", d.Pos, arg.Key)
		}
	}
}
