package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coppice-dev/coppice/release/internal/archive"
	"github.com/coppice-dev/coppice/release/internal/target"
)

const (
	testVersion    = "v1.2.3"
	testKubernetes = "v1.37.2"
)

// made is a release of a small program in the place of Coppice, in a directory that is served. It is
// made once for all tests.
var made struct {
	dir    string
	server *httptest.Server
}

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "coppice-release-test-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	made.dir = filepath.Join(dir, "dist")
	made.server = httptest.NewServer(http.FileServer(http.Dir(made.dir)))
	defer made.server.Close()
	if err := makeRelease(filepath.Join(dir, "source"), made.dir, made.server.URL, io.Discard); err != nil {
		panic(err)
	}
	return m.Run()
}

// makeRelease makes a release of the small program, for all platforms unless more arguments say
// otherwise, from a source directory that it makes.
func makeRelease(source, output, url string, report io.Writer, more ...string) error {
	program, err := os.ReadFile("testdata/program/main.go")
	if err != nil {
		return err
	}
	for name, text := range map[string]string{
		"go.mod":              "module github.com/coppice-dev/coppice\n\ngo 1.26.0\n",
		"cmd/coppice/main.go": string(program),
		"README.md":           "# Coppice\n",
		"CHANGELOG.md":        "# Changes\n",
		"LICENSE":             "free\n",

		"collector/collector.go": "// Package collector is small.\npackage collector\n",
		"collector/README.md":    "# Collector\n",
	} {
		path := filepath.Join(source, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
	}
	for _, real := range []string{"release", "deploy"} {
		path, err := filepath.Abs("../" + real)
		if err != nil {
			return err
		}
		if err := os.Symlink(path, filepath.Join(source, real)); err != nil {
			return err
		}
	}
	return run(context.Background(), append([]string{
		"-version", testVersion, "-kubernetes", testKubernetes, "-repository", source, "-o", output,
		"-base-url", url, "-epoch", "1767323046",
	}, more...), report)
}

// TestTwoReleasesAreTheSame: the same source makes the same files, elsewhere and later.
func TestTwoReleasesAreTheSame(t *testing.T) {
	dir := t.TempDir()
	if err := makeRelease(filepath.Join(dir, "somewhere", "else"), filepath.Join(dir, "dist"), made.server.URL, io.Discard); err != nil {
		t.Fatal(err)
	}
	first, second := read(t, filepath.Join(made.dir, sumsName)), read(t, filepath.Join(dir, "dist", sumsName))
	if first != second {
		t.Errorf("the checksums of two releases differ:\n%s\n%s", first, second)
	}
}

// TestEveryFileHasItsChecksum: every file has its line.
func TestEveryFileHasItsChecksum(t *testing.T) {
	sums := map[string]string{}
	for lines := bufio.NewScanner(strings.NewReader(read(t, filepath.Join(made.dir, sumsName)))); lines.Scan(); {
		sum, name, _ := strings.Cut(lines.Text(), "  ")
		sums[name] = sum
	}
	files := 0
	err := fs.WalkDir(os.DirFS(made.dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || name == sumsName {
			return err
		}
		files++
		hash := sha256.Sum256([]byte(read(t, filepath.Join(made.dir, filepath.FromSlash(name)))))
		if got := sums[name]; got != hex.EncodeToString(hash[:]) {
			t.Errorf("%s has the checksum %x, its line says %q", name, hash, got)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if name := "go/github.com/coppice-dev/collector/@v/" + testVersion + ".zip"; sums[name] == "" {
		t.Errorf("the release has no %s", name)
	}
	for _, platform := range target.All() {
		for _, name := range []string{platform.Archive(testVersion), platform.BillOfMaterials(testVersion)} {
			if sums[name] == "" {
				t.Errorf("the release has no %s", name)
			}
		}
	}
	if len(sums) != files {
		t.Errorf("there are %d checksums of %d files", len(sums), files)
	}
}

func TestWrongCommandLines(t *testing.T) {
	good := map[string]string{"-version": "v1.2.3", "-kubernetes": "v1.37.2", "-base-url": "https://example.com/v1.2.3", "-targets": "linux/amd64"}
	for name, value := range map[string]string{
		"-version":    "392b5a2",
		"-kubernetes": "1.37",
		"-base-url":   "https://example.com/$(id)",
		"-targets":    "plan9/amd64",
	} {
		t.Run(name, func(t *testing.T) {
			args := []string{"-o", t.TempDir(), "-repository", "nowhere"}
			for other, usual := range good {
				if other == name {
					usual = value
				}
				args = append(args, other, usual)
			}
			if err := run(t.Context(), args, io.Discard); err == nil || !strings.Contains(err.Error(), value) {
				t.Errorf("%s %s: got %v, want an error about it", name, value, err)
			}
		})
	}
}

// TestOtherFilesAreKept: only the output of an earlier release makes room for a new one.
func TestOtherFilesAreKept(t *testing.T) {
	dir := t.TempDir()
	own := filepath.Join(dir, "thesis.txt")
	if err := os.WriteFile(own, []byte("years of work"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := release{output: dir}
	if err := r.prepare(); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v, want an error about %s", err, dir)
	}
	if err := os.WriteFile(filepath.Join(dir, sumsName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if read(t, own) != "years of work" {
		t.Error("the file is gone")
	}
	if err := r.prepare(); err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(r.work)
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("the earlier release is still there: %v, %v", entries, err)
	}
}

func TestTooLargeAnArchive(t *testing.T) {
	r := release{output: t.TempDir(), made: time.Unix(0, 0)}
	files := []archive.File{{Name: "noise", Data: make([]byte, largest)}}
	if err := r.create("large", files, archive.Tar); err == nil || !strings.Contains(err.Error(), "40000000") {
		t.Errorf("got %v, want an error about the size", err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// here is the platform of the tests.
func here(t *testing.T) target.Target {
	t.Helper()
	platform := target.Target{OS: runtime.GOOS, Arch: runtime.GOARCH}
	if !slices.Contains(target.All(), platform) {
		t.Skipf("there is no release for %s", platform)
	}
	return platform
}
