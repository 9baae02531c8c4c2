// Package gomodule writes package collector as a Go module of its own, as Kubernetes publishes client-go from its
// repository: the module has the same requirements as client-go, without those of Coppice's server, tools and
// tests.
//
// The flow of Module.Write:
//
//  1. The sources are package collector and the packages of the repository that it imports directly or indirectly
//     (sources.go). Package collector becomes the root of the module, and its package report a package below; the others keep
//     their places below internal.
//  2. Their imports of each other are rewritten.
//  3. LICENSE, README.md, and the go.mod and go.sum of this directory complete the module. go.mod has the lowest
//     versions with which the module compiles, so that it does not raise the versions of its users.
//  4. The module is written as the files that a module proxy serves.
package gomodule

import (
	"bytes"
	_ "embed" // for the files of the module
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

const (
	// Path is the path of the module.
	Path = "github.com/coppice-dev/collector"
	// repositoryPath is the path of the repository's module; source is the directory of the package that becomes a
	// module.
	repositoryPath = "github.com/coppice-dev/coppice"
	source         = "collector"
)

var (
	//go:embed go.mod.txt
	goMod []byte
	//go:embed go.sum.txt
	goSum []byte
)

// Module is a version of the module.
type Module struct {
	Repository string // the directory with the source
	Version    string // a semantic version, with a v
	Made       time.Time
}

// Files returns the files of the module, by their slash-separated names.
func (m Module) Files() (map[string][]byte, error) {
	files, err := sources(m.Repository)
	if err != nil {
		return nil, err
	}
	files["go.mod"], files["go.sum"] = goMod, goSum
	for name, path := range map[string]string{"LICENSE": "LICENSE", "README.md": source + "/README.md"} {
		if files[name], err = os.ReadFile(filepath.Join(m.Repository, filepath.FromSlash(path))); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// Write writes the module into a directory, so that a file server of the directory is a module proxy.
func (m Module) Write(dir string) error {
	files, err := m.Files()
	if err != nil {
		return err
	}
	version := module.Version{Path: Path, Version: m.Version}
	var archive bytes.Buffer
	zipped := make([]zip.File, 0, len(files))
	for _, name := range slices.Sorted(maps.Keys(files)) {
		zipped = append(zipped, file{name, files[name]})
	}
	if err := zip.Create(&archive, version, zipped); err != nil {
		return fmt.Errorf("pack module: %w", err)
	}
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{m.Version, m.Made.UTC()})
	if err != nil {
		return err
	}
	escaped, err := module.EscapePath(Path)
	if err != nil {
		return err
	}
	at := filepath.Join(dir, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	for name, data := range map[string][]byte{
		"list": []byte(m.Version + "\n"), m.Version + ".info": info, m.Version + ".mod": goMod, m.Version + ".zip": archive.Bytes(),
	} {
		if err := os.WriteFile(filepath.Join(at, name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// file implements zip.File.
type file struct {
	name string
	data []byte
}

// Path implements zip.File.
func (f file) Path() string { return f.name }

// Lstat implements zip.File.
func (f file) Lstat() (os.FileInfo, error) { return info{f}, nil }

// Open implements zip.File.
func (f file) Open() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(f.data)), nil }

// info implements os.FileInfo. The archive has neither modes nor times.
type info struct{ of file }

// Name implements os.FileInfo.
func (i info) Name() string { return filepath.Base(i.of.name) }

// Size implements os.FileInfo.
func (i info) Size() int64 { return int64(len(i.of.data)) }

// Mode implements os.FileInfo.
func (info) Mode() os.FileMode { return 0o644 }

// ModTime implements os.FileInfo.
func (info) ModTime() time.Time { return time.Time{} }

// IsDir implements os.FileInfo.
func (info) IsDir() bool { return false }

// Sys implements os.FileInfo.
func (info) Sys() any { return nil }
