package simulation

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// A mutant is a bug that was planted on purpose: a patch in testdata/mutants. The
// patches are applied to copies, and the simulation is built with the copies in
// place of the files (go build -overlay), so the code itself has no switches.
//
//	go test ./internal/testing/simulation -run TestMutants -sim.mutants=all -timeout 2h
//
// builds and hunts all of them. Without the flag it is only checked that every
// patch still fits, and that some of them compile.

var (
	mutantsFlag = flag.String("sim.mutants", "", "the mutants to hunt, by name and with commas; all: all")
	huntsFlag   = flag.Int("sim.hunts", 0, "find a violation so many times, and report how many seeds that took")
)

const (
	root = "../../.." // of the module
	// hunts is how often each mutant is hunted, to tell how many seeds it takes.
	hunts = 5
	// patience is how many seeds a hunt may take.
	patience = 20000
)

// mutant is one patch.
type mutant struct {
	name    string
	about   string
	file    string // relative to the root of the module
	changes [][2]string
}

// mutants reads all patches.
func mutants(t *testing.T) []mutant {
	t.Helper()
	paths, err := filepath.Glob("testdata/mutants/*.patch")
	if err != nil {
		t.Fatal(err)
	}
	var all []mutant
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		m := mutant{name: strings.TrimSuffix(filepath.Base(path), ".patch")}
		rest := string(text)
		m.about, rest, _ = strings.Cut(rest, "\n")
		m.file, rest, _ = strings.Cut(strings.TrimPrefix(rest, "file "), "\n")
		for rest != "" {
			var old, changed string
			rest = strings.TrimPrefix(rest, "<<<<\n")
			old, rest, _ = strings.Cut(rest, "\n====\n")
			changed, rest, _ = strings.Cut("\n"+rest, "\n>>>>\n")
			m.changes = append(m.changes, [2]string{old, strings.TrimPrefix(changed, "\n")})
		}
		all = append(all, m)
	}
	return all
}

// apply returns the file with the bug in it.
func (m mutant) apply(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		t.Fatal(err)
	}
	text := string(content)
	for _, change := range m.changes {
		if n := strings.Count(text, change[0]); n != 1 {
			t.Errorf("%s: fits %d times in %s:\n%s", m.name, n, m.file, change[0])
		}
		text = strings.Replace(text, change[0], change[1], 1)
	}
	return text
}

// overlay writes what go build -overlay reads.
func (m mutant) overlay(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	original, err := filepath.Abs(filepath.Join(root, m.file))
	if err != nil {
		t.Fatal(err)
	}
	patched := filepath.Join(dir, filepath.Base(m.file))
	index, err := json.Marshal(map[string]map[string]string{"Replace": {original: patched}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "overlay.json")
	for name, content := range map[string]string{patched: m.apply(t), path: string(index)} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// command runs a command and returns what it prints.
func command(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	var output bytes.Buffer
	c := exec.CommandContext(ctx, name, args...)
	c.Stdout, c.Stderr = &output, &output
	err := c.Run()
	return output.String(), err
}

func TestMutants(t *testing.T) {
	all := mutants(t)
	if len(all) < 20 {
		t.Errorf("there are %d mutants, want 20 at least", len(all))
	}
	for _, m := range all {
		m.apply(t)
	}
	if *mutantsFlag != "" {
		hunt(t, all)
		return
	}
	for _, m := range all[:2] {
		t.Run(m.name, func(t *testing.T) {
			if output, err := command(t, "go", "build", "-overlay", m.overlay(t), "./"+filepath.Join(root, filepath.Dir(m.file))); err != nil {
				t.Errorf("%v\n%s", err, output)
			}
		})
	}
}

// prey is what a hunt has found: one line of JSON from TestHunt.
type prey struct {
	Seeds uint64 // how many it took; 0: none was found
	Rule  string
	Steps int // of the shrunk schedule
}

// hunt builds and hunts the mutants that the flag names.
func hunt(t *testing.T, all []mutant) {
	var table strings.Builder
	var medians []uint64
	caught := 0
	for _, m := range all {
		if *mutantsFlag != "all" && !slices.Contains(strings.Split(*mutantsFlag, ","), m.name) {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			found := m.hunt(t)
			var seeds []uint64
			var rules []string
			steps := 0
			for _, p := range found {
				if p.Seeds > 0 {
					seeds = append(seeds, p.Seeds)
					rules = append(rules, p.Rule)
					steps = max(steps, p.Steps)
				}
			}
			slices.Sort(seeds)
			slices.Sort(rules)
			if len(seeds) <= hunts/2 {
				fmt.Fprintf(&table, "%-28s NOT CAUGHT (%d of %d)\n", m.name, len(seeds), hunts)
				t.Errorf("not caught in %d seeds", patience)
				return
			}
			caught++
			median := seeds[hunts/2] // those not caught are the last
			medians = append(medians, median)
			fmt.Fprintf(&table, "%-28s %6d seeds, shrunk to %2d steps at most, %s\n", m.name, median, steps, strings.Join(slices.Compact(rules), " "))
		})
	}
	slices.Sort(medians)
	if len(medians) > 0 {
		t.Logf("\n%s%d caught, median of the median seeds %d", table.String(), caught, medians[len(medians)/2])
	}
}

func (m mutant) hunt(t *testing.T) []prey {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "simulation.test")
	if output, err := command(t, "go", "test", "-c", "-o", binary, "-overlay", m.overlay(t), "."); err != nil {
		t.Fatalf("build: %v\n%s", err, output)
	}
	output, err := command(t, binary, "-test.run=^TestHunt$", fmt.Sprintf("-sim.hunts=%d", hunts))
	var found []prey
	for line := range strings.Lines(output) {
		var p prey
		if json.Unmarshal([]byte(line), &p) == nil {
			found = append(found, p)
		}
	}
	if len(found) != hunts {
		t.Fatalf("the hunt did not end: %v\n%s", err, output)
	}
	return found
}

// TestHunt is what runs in the binary of a mutant.
func TestHunt(t *testing.T) {
	for n := range uint64(*huntsFlag) {
		var p prey
		for i := range uint64(patience) {
			result := Random(t.Context(), n*1_000_000+i+1, DefaultSteps, Options{})
			if result.Violation != nil {
				p = prey{Seeds: i + 1, Rule: result.Violation.Rule, Steps: len(Shrink(t.Context(), result).Steps)}
				break
			}
		}
		line, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println(string(line))
	}
}
