package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// listed is a package as go list prints it.
type listed struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string
	Module          *struct{ Main bool }
}

// TestTypesOnEveryPlatform checks Coppice's types for the systems that CI does not run on, in a
// fraction of the time that compiling takes: of the packages of others, which were compiled there
// by them, only the declarations are looked at.
func TestTypesOnEveryPlatform(t *testing.T) {
	for _, system := range []string{"darwin", "windows"} {
		t.Run(system, func(t *testing.T) {
			own, err := checkTypes(system)
			if err != nil {
				t.Error(err)
			}
			if own < 100 {
				t.Errorf("%d packages of Coppice were checked", own)
			}
		})
	}
}

// checkTypes checks the types of the binary for an operating system, and returns how many of its
// own packages it has.
func checkTypes(system string) (own int, err error) {
	list := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,GoFiles,ImportMap,Module", "./cmd/coppice")
	list.Dir, list.Stderr = "..", os.Stderr
	list.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH=arm64")
	out, err := list.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := list.Start(); err != nil {
		return 0, err
	}
	checked := map[string]*types.Package{"unsafe": types.Unsafe}
	files := token.NewFileSet()
	for packages := json.NewDecoder(out); ; { // each after its imports
		var p listed
		if err := packages.Decode(&p); errors.Is(err, io.EOF) {
			return own, list.Wait()
		} else if err != nil {
			return own, err
		}
		if p.ImportPath == "unsafe" {
			continue
		}
		isOwn := p.Module != nil && p.Module.Main
		if isOwn {
			own++
		}
		if checked[p.ImportPath], err = p.check(files, checked, isOwn); err != nil && isOwn {
			return own, errors.Join(err, list.Process.Kill())
		}
	}
}

// check checks a package, with the bodies of its functions or without.
func (p listed) check(files *token.FileSet, checked map[string]*types.Package, bodies bool) (*types.Package, error) {
	var parsed []*ast.File
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, file)
	}
	config := types.Config{
		Importer: importer(func(path string) (*types.Package, error) {
			if real, ok := p.ImportMap[path]; ok {
				path = real
			}
			if imported := checked[path]; imported != nil {
				return imported, nil
			}
			return nil, fmt.Errorf("%s is not there", path)
		}),
		IgnoreFuncBodies: !bodies,
		Error:            func(error) {}, // goes on; Check returns the first error
	}
	return config.Check(p.ImportPath, files, parsed, nil)
}

type importer func(path string) (*types.Package, error)

func (i importer) Import(path string) (*types.Package, error) { return i(path) }
