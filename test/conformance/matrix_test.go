package conformance

import (
	_ "embed"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/coppice-dev/coppice/internal/cli/conformance"
)

//go:embed matrix.txt
var matrix string

// root is the root of the repository, seen from this package.
const root = "../.."

var (
	behaviour = regexp.MustCompile(`\b(GB|TR|AC|VN|CF|OR|FG|BG|MX|CY|CS|CR|DR|NS|AS|AD|PR)-([0-9]{2})\b|\bH(?:10|[1-9])[ab]?\b`)
	groups    = []string{"GB", "TR", "AC", "VN", "CF", "OR", "FG", "BG", "MX", "CY", "CS", "CR", "DR", "NS", "AS", "AD", "PR"}
)

// TestMatrixNamesItsTests checks the matrix against the tests: every behaviour is tested where the matrix
// says, by a test that names it; and no test names a behaviour that is not in it. That the tests
// of this package actually run is checked after all of them (notRun).
func TestMatrixNamesItsTests(t *testing.T) {
	here := idsInNames(t, ".")
	for _, turn := range conformance.Checks() {
		for _, check := range turn.Checks {
			for _, id := range check.IDs() {
				here[id] = true
			}
		}
	}
	scenarios := idsIn(t, filepath.Join(root, "internal", "rules", "verdict", "testdata"))
	tests := map[string]map[string]map[string]bool{} // the IDs in them, by directory and name
	known := map[string]bool{}
	last := map[string]int{} // number in each group
	for line := range strings.Lines(matrix) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] == "#" || strings.HasPrefix(fields[0], "#") {
			continue
		}
		id := fields[0]
		if behaviour.FindString(id) != id || len(fields) < 3 {
			t.Errorf("%q is no line of a matrix", line)
			continue
		}
		known[id] = true
		if group, number, ok := strings.Cut(id, "-"); ok {
			last[group]++
			if n, err := strconv.Atoi(number); err != nil || n != last[group] {
				t.Errorf("%s follows %s-%02d", id, group, last[group]-1)
			}
		}
		for place := range strings.SplitSeq(fields[1], ",") {
			dir, test, _ := strings.Cut(place, ".")
			switch place {
			case "here", "kubernetes":
				if !here[id] {
					t.Errorf("%s: no test of this package has it in its name", id)
				}
			case "scenarios":
				if !scenarios[id] {
					t.Errorf("%s: no scenario of verdict/testdata names it", id)
				}
			default:
				if tests[dir] == nil {
					tests[dir] = testsIn(t, filepath.Join(root, filepath.FromSlash(dir)))
				}
				if strings.HasPrefix(test, "Benchmark") && !strings.Contains(fields[1], ",") {
					t.Errorf("%s: only a benchmark is about it, which no run of the tests runs", id)
				}
				switch ids, ok := tests[dir][test]; {
				case !ok:
					t.Errorf("%s: there is no %s in %s", id, test, dir)
				case !ids[id]:
					t.Errorf("%s: %s in %s does not say that it is about it", id, test, dir)
				}
			}
		}
	}
	for _, group := range groups {
		if last[group] == 0 {
			t.Errorf("group %s has no line", group)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(here)) {
		if !known[id] {
			t.Errorf("%s is tested here and not in the matrix", id)
		}
	}
}

// ended are the IDs in the names of the tests that have ended.
var ended struct {
	sync.Mutex
	ran, skipped map[string]bool // guarded
}

// record records at the end of a test that it has run, or was skipped. Every check calls it, and
// every test that asks for a server without a collector.
func record(t testing.TB) {
	t.Helper()
	t.Cleanup(func() {
		ended.Lock()
		defer ended.Unlock()
		if ended.ran == nil {
			ended.ran, ended.skipped = map[string]bool{}, map[string]bool{}
		}
		// The testing package writes spaces of names as underscores.
		for _, id := range behaviour.FindAllString(strings.ReplaceAll(t.Name(), "_", " "), -1) {
			if t.Skipped() {
				ended.skipped[id] = true
			} else {
				ended.ran[id] = true
			}
		}
	})
}

// notRun returns the IDs that this package should test on the server in use according to the
// matrix, but did not. A run of selected tests is not checked.
func notRun() []string {
	for _, name := range []string{"test.run", "test.skip", "test.list", "test.bench"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" {
			return nil
		}
	}
	place := "here"
	if os.Getenv(kubeconfigVariable) != "" {
		place = "kubernetes"
		if os.Getenv(collectorVariable) == "none" {
			return nil // what tests our collector is skipped
		}
	}
	ended.Lock()
	defer ended.Unlock()
	var missing []string
	for line := range strings.Lines(matrix) {
		fields := strings.Fields(line)
		if len(fields) < 2 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		id, places := fields[0], strings.Split(fields[1], ",")
		// Tests that are skipped on our server have to run on kube-apiserver.
		isSkipped := ended.skipped[id] && (place == "kubernetes" || !slices.Contains(places, "kubernetes"))
		if slices.Contains(places, place) && (!ended.ran[id] || isSkipped) {
			missing = append(missing, id)
		}
	}
	return missing
}

// idsInNames returns the IDs in the names of subtests of a package: the first argument
// of a call of Run, which may be put together from parts.
func idsInNames(t *testing.T, dir string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, file := range testFiles(t, dir) {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if f, ok := n.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Run" && len(n.Args) == 2 {
					collectIDs(n.Args[0], found)
				}
			case *ast.RangeStmt: // a table with IDs as keys
				collectIDs(n.X, found)
			}
			return true
		})
	}
	return found
}

// collectIDs adds the IDs in the literals of an expression or a body.
func collectIDs(e ast.Node, found map[string]bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			for _, id := range behaviour.FindAllString(literal.Value, -1) {
				found[id] = true
			}
		}
		return true
	})
}

// idsIn returns the IDs in the files of a directory.
func idsIn(t *testing.T, dir string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		for _, id := range behaviour.FindAllString(string(text), -1) {
			found[id] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// testsIn returns the tests and benchmarks of a package, with the IDs in their comments and
// in their text.
func testsIn(t *testing.T, dir string) map[string]map[string]bool {
	t.Helper()
	found := map[string]map[string]bool{}
	for _, file := range testFiles(t, dir) {
		for _, declaration := range file.Decls {
			if f, ok := declaration.(*ast.FuncDecl); ok && f.Recv == nil && (strings.HasPrefix(f.Name.Name, "Test") || strings.HasPrefix(f.Name.Name, "Benchmark")) {
				ids := map[string]bool{}
				collectIDs(f.Body, ids)
				for _, id := range behaviour.FindAllString(f.Name.Name+" "+f.Doc.Text(), -1) {
					ids[id] = true
				}
				found[f.Name.Name] = ids
			}
		}
	}
	return found
}

func testFiles(t *testing.T, dir string) []*ast.File {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			t.Fatal(fmt.Errorf("parse %s: %w", path, err))
		}
		files = append(files, file)
	}
	return files
}
