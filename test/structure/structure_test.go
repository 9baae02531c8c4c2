// Package structure checks the project as a whole: its layers, its packages, its rules and
// the tests of them, its documents, and its words.
package structure

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/coppice-dev/coppice"

// root is the root of the repository, seen from this package.
const root = "../.."

// goFile is one parsed file of the repository.
type goFile struct {
	dir      string // slash-separated, relative to the root; "." for the root
	name     string
	isNested bool // in a module below the main one
	ast      *ast.File
	set      *token.FileSet
}

// at returns the place of a node for a message.
func (f goFile) at(node ast.Node) string {
	return fmt.Sprintf("%s/%s:%d", f.dir, f.name, f.set.Position(node.Pos()).Line)
}

// parsed are the Go files of the repository, once they have been asked for.
var parsed []goFile

// goFiles returns every Go file of the main module, parsed with its comments.
func goFiles(t *testing.T) []goFile {
	t.Helper()
	return slices.DeleteFunc(slices.Clone(everyGoFile(t)), func(f goFile) bool { return f.isNested })
}

// everyGoFile returns every Go file of the repository, those of nested modules too.
func everyGoFile(t *testing.T) []goFile {
	t.Helper()
	if parsed != nil {
		return parsed
	}
	var files []goFile
	nested := "" // the nested module that the walk is in
	set := token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules") {
				return filepath.SkipDir
			}
			if nested != "" && !strings.HasPrefix(path, nested+string(filepath.Separator)) {
				nested = ""
			}
			if nested == "" && path != root && hasGoMod(path) {
				nested = path
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		file, err := parser.ParseFile(set, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		isNested := nested != "" && strings.HasPrefix(path, nested+string(filepath.Separator))
		files = append(files, goFile{filepath.ToSlash(dir), d.Name(), isNested, file, set})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	parsed = files
	return files
}

// hasGoMod reports whether a directory is a module of its own.
func hasGoMod(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

func (f goFile) isTest() bool { return strings.HasSuffix(f.name, "_test.go") }

func (f goFile) imports(t *testing.T) []string {
	t.Helper()
	var paths []string
	for _, spec := range f.ast.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatalf("%s/%s: %v", f.dir, f.name, err)
		}
		paths = append(paths, path)
	}
	return paths
}

// layer is a line of layers.txt: a directory, and the allowed imports of the packages below it.
type layer struct {
	dir  string
	uses []string
}

// layers reads layers.txt.
func layers(t *testing.T) []layer {
	t.Helper()
	text, err := os.ReadFile("layers.txt")
	if err != nil {
		t.Fatal(err)
	}
	var all []layer
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		dir, uses, ok := strings.Cut(line, ":")
		if !ok {
			t.Fatalf("layers.txt: %q has no colon", line)
		}
		all = append(all, layer{dir, strings.Fields(uses)})
	}
	return all
}

// contains reports whether a directory is below another one of this module, or is it. The root is not above anything.
func contains(above, dir string) bool {
	return dir == above || above != "." && strings.HasPrefix(dir, above+"/")
}

// layerOf finds the longest line that names dir or something above it.
func layerOf(all []layer, dir string) (layer, bool) {
	var found layer
	for _, l := range all {
		if contains(l.dir, dir) && len(l.dir) > len(found.dir) {
			found = l
		}
	}
	return found, found.dir != ""
}

// may reports whether packages of the layer may import a directory.
func (l layer) may(dir string) bool {
	return contains(l.dir, dir) || slices.ContainsFunc(l.uses, func(used string) bool { return contains(used, dir) })
}

func TestImportsFollowTheLayers(t *testing.T) {
	all := layers(t)
	checked := map[string]int{}
	for _, f := range goFiles(t) {
		own, ok := layerOf(all, f.dir)
		if !ok {
			t.Errorf("%s is in no family: see test/structure/layers.txt", f.dir)
			continue
		}
		for _, path := range f.imports(t) {
			dir, isOurs := strings.CutPrefix(path, module)
			if !isOurs || dir != "" && dir[0] != '/' || f.isTest() {
				continue
			}
			if dir = strings.TrimPrefix(dir, "/"); dir == "" {
				dir = "."
			}
			checked[own.dir]++
			if !own.may(dir) {
				t.Errorf("%s/%s imports %s, which packages below %s may not: see test/structure/layers.txt", f.dir, f.name, dir, own.dir)
			}
		}
	}
	for _, l := range all {
		if checked[l.dir] == 0 && len(l.uses) > 0 {
			t.Errorf("layers.txt: no package below %s imports anything of this module", l.dir)
		}
	}
}

// TestThePackagesAreListed: internal/README.md has a link to each package, or to one above it. The comment of
// internal/testing lists the packages of the test kit, and those of controllers have upstream's names.
func TestThePackagesAreListed(t *testing.T) {
	list, err := os.ReadFile(filepath.Join(root, "internal", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range goFiles(t) {
		parts := strings.Split(f.dir, "/")
		if len(parts) < 3 || parts[0] != "internal" || parts[1] == "controller" || parts[1] == "testing" {
			continue
		}
		if entry := parts[1] + "/" + parts[2]; !strings.Contains(string(list), "]("+entry+")") {
			t.Errorf("internal/README.md has no link to internal/%s", entry)
		}
	}
}

// TestTheTreeShowsItsFamilies: the directories in internal are the families. ARCHITECTURE.md has a sentence about each, and
// internal/README.md lists its packages.
func TestTheTreeShowsItsFamilies(t *testing.T) {
	architecture, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	packages, err := os.ReadFile(filepath.Join(root, "internal", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Join(root, "internal"))
	if err != nil {
		t.Fatal(err)
	}
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool { return !e.IsDir() })
	if len(entries) > 9 {
		t.Errorf("internal has %d directories; nine families are what somebody new surveys", len(entries))
	}
	for _, entry := range entries {
		family := "internal/" + entry.Name()
		if !slices.ContainsFunc(layers(t), func(l layer) bool { return l.dir == family }) {
			t.Errorf("%s has no line in test/structure/layers.txt", family)
		}
		if !strings.Contains(string(architecture), "\n| ["+family+"]("+family+") | ") {
			t.Errorf("ARCHITECTURE.md says nothing about %s", family)
		}
		if !strings.Contains(string(packages), "\n## "+entry.Name()+"\n") {
			t.Errorf("internal/README.md does not list the packages of %s", family)
		}
	}
}

func TestNoPackageRequiresKubernetesItself(t *testing.T) {
	for _, f := range goFiles(t) {
		for _, path := range f.imports(t) {
			if path == "k8s.io/kubernetes" || strings.HasPrefix(path, "k8s.io/kubernetes/") {
				t.Errorf("%s/%s imports %s: only the module in bench may", f.dir, f.name, path)
			}
		}
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mod), "k8s.io/kubernetes ") {
		t.Error("go.mod requires k8s.io/kubernetes")
	}
}

func TestEveryPackageHasOneComment(t *testing.T) {
	comments := map[string]int{}
	for _, f := range goFiles(t) {
		if f.isTest() && !strings.HasPrefix(f.dir, "test") {
			continue
		}
		if _, ok := comments[f.dir]; !ok {
			comments[f.dir] = 0
		}
		if f.ast.Doc != nil {
			comments[f.dir]++
		}
	}
	for dir, n := range comments {
		if n != 1 {
			t.Errorf("%s has %d package comments, want 1", dir, n)
		}
	}
}

func TestNoPackageIsNamedAfterNothing(t *testing.T) {
	for _, f := range goFiles(t) {
		switch name := f.ast.Name.Name; name {
		case "util", "utils", "common", "helper", "helpers", "manager", "misc", "base":
			t.Errorf("%s: package %s says nothing about what it is for", f.dir, name)
		}
	}
}
