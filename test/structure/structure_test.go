// Package structure checks the project as a whole: its layers, its packages, its rules and
// the tests of them, its documents, and its words.
package structure

import (
	"bufio"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/coppice-dev/coppice"

// root is the root of the repository, seen from this package.
const root = "../.."

// goFile is one parsed file of the repository.
type goFile struct {
	dir  string // slash-separated, relative to the root; "." for the root
	name string
	ast  *ast.File
}

// parsed are the Go files of the main module, once they have been asked for.
var parsed []goFile

// goFiles parses every Go file of the main module, with its comments.
func goFiles(t *testing.T) []goFile {
	t.Helper()
	if parsed != nil {
		return parsed
	}
	var files []goFile
	fset := token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); path != root && (strings.HasPrefix(name, ".") || name == "testdata" || hasGoMod(path)) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		file, err := parser.ParseFile(fset, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		files = append(files, goFile{dir: filepath.ToSlash(dir), name: d.Name(), ast: file})
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

// layers reads layers.txt.
func layers(t *testing.T) []string {
	t.Helper()
	file, err := os.Open("layers.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var names []string
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if line := strings.TrimSpace(lines.Text()); line != "" && !strings.HasPrefix(line, "#") {
			names = append(names, line)
		}
	}
	return names
}

// layerOf finds the longest line that names dir or something above it.
func layerOf(names []string, dir string) int {
	layer, longest := -1, -1
	for i, name := range names {
		if (dir == name || name != "." && strings.HasPrefix(dir, name+"/")) && len(name) > longest {
			layer, longest = i, len(name)
		}
	}
	return layer
}

func TestImportsFollowTheLayers(t *testing.T) {
	names := layers(t)
	checked := 0
	for _, f := range goFiles(t) {
		own := layerOf(names, f.dir)
		if own < 0 {
			t.Errorf("%s is in no layer: give it a line in test/structure/layers.txt", f.dir)
			continue
		}
		for _, path := range f.imports(t) {
			if path != module && !strings.HasPrefix(path, module+"/") {
				continue
			}
			dir := strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
			if dir == "" {
				dir = "."
			}
			checked++
			if other := layerOf(names, dir); other > own && !f.isTest() {
				t.Errorf("%s/%s imports %s, which is a higher layer: its line in layers.txt comes after that of %s", f.dir, f.name, dir, names[own])
			}
		}
	}
	if checked == 0 {
		t.Fatal("no import was checked")
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
