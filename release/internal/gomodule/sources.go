package gomodule

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// examples are the only tests in the module: they are part of the documentation.
const examples = "example_test.go"

// sources returns the Go files of the module, by their names in the module, with rewritten imports.
func sources(repository string) (map[string][]byte, error) {
	files := map[string][]byte{}
	seen := map[string]bool{}
	for next := []string{source}; len(next) > 0; next = next[1:] {
		dir := next[0]
		if seen[dir] {
			continue
		}
		seen[dir] = true
		imports, err := addPackage(files, repository, dir)
		if err != nil {
			return nil, fmt.Errorf("read package %s: %w", dir, err)
		}
		next = append(next, imports...)
	}
	return files, nil
}

// addPackage adds the files of a package, and returns the directories of the packages that they import.
func addPackage(files map[string][]byte, repository, dir string) (imports []string, err error) {
	entries, err := os.ReadDir(filepath.Join(repository, filepath.FromSlash(dir)))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name := e.Name()
		isTest := strings.HasSuffix(name, "_test.go") && (dir != source || name != examples)
		if e.IsDir() || !strings.HasSuffix(name, ".go") || isTest {
			continue
		}
		text, err := os.ReadFile(filepath.Join(repository, filepath.FromSlash(dir), name))
		if err != nil {
			return nil, err
		}
		rewritten, needs, err := rewrite(name, text)
		if err != nil {
			return nil, err
		}
		files[path.Join(place(dir), name)] = rewritten
		imports = append(imports, needs...)
	}
	return imports, nil
}

// place returns the directory in the module for a directory of the repository.
func place(dir string) string {
	if dir == source {
		return "."
	}
	return strings.TrimPrefix(dir, source+"/")
}

// rewrite replaces a file's imports of the repository with imports of the module. It also returns the
// repository's directories that the file imports.
func rewrite(name string, text []byte) (rewritten []byte, imports []string, err error) {
	positions := token.NewFileSet()
	parsed, err := parser.ParseFile(positions, name, text, parser.ImportsOnly)
	if err != nil {
		return nil, nil, err
	}
	var out bytes.Buffer
	copied := 0
	for _, spec := range parsed.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, nil, err
		}
		dir, isOurs := strings.CutPrefix(imported, repositoryPath+"/")
		if !isOurs && imported != repositoryPath {
			continue
		}
		if dir != source && !strings.HasPrefix(dir, source+"/") && !strings.HasPrefix(dir, "internal/") {
			return nil, nil, fmt.Errorf("%s imports %s, which has no place in the module", name, imported)
		}
		imports = append(imports, dir)
		begin, end := offsets(positions, spec.Path)
		out.Write(text[copied:begin])
		out.WriteString(strconv.Quote(path.Join(Path, place(dir))))
		copied = end
	}
	out.Write(text[copied:])
	rewritten, err = format.Source(out.Bytes())
	return rewritten, imports, err
}

// offsets returns the begin and the end of a node in its file.
func offsets(positions *token.FileSet, node ast.Node) (begin, end int) {
	return positions.Position(node.Pos()).Offset, positions.Position(node.End()).Offset
}
