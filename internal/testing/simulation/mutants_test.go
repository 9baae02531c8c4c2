package simulation

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
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
// builds and hunts all of them, and -sim.mutants=today a dozen, another one every day.
// Without the flag it is only checked that every patch still fits and compiles.

var (
	mutantsFlag = flag.String("sim.mutants", "", "the mutants to hunt, by name and with commas; all: all; today: a dozen of the day, each until it is caught once")
	huntsFlag   = flag.Int("sim.hunts", 0, "find a violation so many times, and report how many seeds that took")
	onceFlag    = flag.Bool("sim.once", false, "of these hunts, stop at the first that finds one")
)

const (
	module = "github.com/coppice-dev/coppice"
	root   = "../../.." // of the module
	// hunts is the number of times that each mutant is hunted, to measure how many seeds it
	// takes.
	hunts = 5
	// seedsPerHunt is the number of seeds that a hunt may take.
	seedsPerHunt = 20_000
	// dozen is the number of mutants that are hunted in a day.
	dozen = 12
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

// command runs a command and returns its output.
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
	packages := newTypeChecker(t, all)
	for _, m := range all {
		if err := packages.check(m, m.apply(t)); err != nil {
			t.Errorf("%s does not compile: %v", m.name, err)
		}
	}
}

// typeChecker compiles the mutants in this process, as far as the types: a go command each
// would take minutes.
type typeChecker struct {
	fset  *token.FileSet
	files map[string][]string // the compiled files by directory, relative to the root of the module
	types types.Importer
}

func newTypeChecker(t *testing.T, all []mutant) *typeChecker {
	t.Helper()
	c := &typeChecker{fset: token.NewFileSet(), files: map[string][]string{}}
	args := []string{"list", "-export", "-deps", "-f", `{{.ImportPath}} {{.Export}} {{if not .DepOnly}}{{range .GoFiles}}{{.}} {{end}}{{end}}`}
	for _, m := range all {
		if dir := filepath.Dir(m.file); c.files[dir] == nil {
			c.files[dir] = []string{}
			args = append(args, module+"/"+dir)
		}
	}
	output, err := command(t, "go", args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	exports := map[string]string{}
	for line := range strings.Lines(output) {
		fields := strings.Fields(line)
		if len(fields) > 1 {
			exports[fields[0]] = fields[1]
		}
		if dir := strings.TrimPrefix(fields[0], module+"/"); c.files[dir] != nil {
			c.files[dir] = fields[2:]
		}
	}
	c.types = importer.ForCompiler(c.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	return c
}

// check compiles the package of a mutant with the changed file in it.
func (c *typeChecker) check(m mutant, changed string) error {
	dir := filepath.Dir(m.file)
	var files []*ast.File
	isIn := false
	for _, name := range c.files[dir] {
		source := any(nil) // from the disk
		if name == filepath.Base(m.file) {
			source, isIn = changed, true
		}
		file, err := parser.ParseFile(c.fset, filepath.Join(root, dir, name), source, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, file)
	}
	if !isIn {
		return fmt.Errorf("%s is not compiled", m.file)
	}
	config := types.Config{Importer: c.types}
	_, err := config.Check(module+"/"+dir, c.fset, files, nil)
	return err
}

// ofTheDay returns a dozen of the mutants. Each is hunted once in as many days as there
// are dozens.
func ofTheDay(all []mutant, now time.Time) []string {
	day := int(now.Unix() / int64(24*time.Hour/time.Second))
	var names []string
	for i := range min(dozen, len(all)) {
		names = append(names, all[(day*dozen+i)%len(all)].name)
	}
	return names
}

// find is the outcome of a hunt: one line of JSON from TestHunt.
type find struct {
	Seeds uint64 // how many it took; 0: none was found
	Rule  string
	Steps int // of the shrunk schedule
}

// hunt builds and hunts the mutants that the flag names.
func hunt(t *testing.T, all []mutant) {
	var table strings.Builder
	var medians []uint64
	caught := 0
	wanted := strings.Split(*mutantsFlag, ",")
	if *mutantsFlag == "today" {
		wanted = ofTheDay(all, time.Now())
		t.Logf("today's mutants: %s", strings.Join(wanted, ","))
	}
	for _, m := range all {
		if *mutantsFlag != "all" && !slices.Contains(wanted, m.name) {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			found := m.hunt(t)
			if *mutantsFlag == "today" {
				if last := found[len(found)-1]; last.Seeds == 0 {
					t.Errorf("not caught in %d seeds", hunts*seedsPerHunt)
				}
				return
			}
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
				t.Errorf("not caught in %d seeds", seedsPerHunt)
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

func (m mutant) hunt(t *testing.T) []find {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "simulation.test")
	if output, err := command(t, "go", "test", "-c", "-o", binary, "-overlay", m.overlay(t), "."); err != nil {
		t.Fatalf("build: %v\n%s", err, output)
	}
	args := []string{"-test.run=^TestHunt$", fmt.Sprintf("-sim.hunts=%d", hunts)}
	isDaily := *mutantsFlag == "today"
	if isDaily {
		args = append(args, "-sim.once", fmt.Sprintf("-sim.first=%d", seedOfTheDay(time.Now())))
	}
	output, err := command(t, binary, args...)
	var found []find
	for line := range strings.Lines(output) {
		var f find
		if json.Unmarshal([]byte(line), &f) == nil {
			found = append(found, f)
		}
	}
	if len(found) != hunts && (!isDaily || len(found) == 0) {
		t.Fatalf("the hunt did not end: %v\n%s", err, output)
	}
	return found
}

// TestHunt runs in the binary of a mutant.
func TestHunt(t *testing.T) {
	for n := range uint64(*huntsFlag) {
		var f find
		for i := range uint64(seedsPerHunt) {
			result := Random(t.Context(), *firstFlag+n*1_000_000+i+1, DefaultSteps, Options{})
			if result.Violation != nil {
				f = find{Seeds: i + 1, Rule: result.Violation.Rule, Steps: len(Shrink(t.Context(), result).Steps)}
				break
			}
		}
		line, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println(string(line))
		if *onceFlag && f.Seeds > 0 {
			return
		}
	}
}
