package assets

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/coppice-dev/coppice/internal/system/assets/role"
)

// binary writes a file to use as the binary of assets.
func binary(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "coppice")
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func contents(t *testing.T, dir string) string {
	t.Helper()
	var all []string
	for _, r := range role.All() {
		data, err := os.ReadFile(pathOf(dir, r))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(data))
	}
	return strings.Join(all, " ")
}

// The assets are created once, and again when the binary has changed or one of them is damaged.
func TestAssetsAreMadeOnceAndAgainWhenDamaged(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "assets")
	first := binary(t, "first")
	made, err := Make(dir, first, "")
	if err != nil || made != dir || contents(t, dir) != "first first first" {
		t.Fatalf("%s, %v: %s", made, err, contents(t, dir))
	}
	before, err := os.Stat(pathOf(dir, role.Etcd))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Make(dir, first, ""); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(pathOf(dir, role.Etcd)); err != nil || !os.SameFile(before, after) {
		t.Errorf("made twice: %v", err)
	}
	if _, err := Make(dir, binary(t, "second"), ""); err != nil || contents(t, dir) != "second second second" {
		t.Errorf("%v: %s", err, contents(t, dir))
	}
	if err := os.Remove(pathOf(dir, role.Kubectl)); err != nil {
		t.Fatal(err)
	}
	if _, err := Make(dir, first, ""); err != nil || contents(t, dir) != "first first first" {
		t.Errorf("%v: %s", err, contents(t, dir))
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != len(role.All())+1 {
		t.Errorf("%d entries, %v", len(entries), err)
	}
}

// By default the assets are in the user's cache, in a directory for each binary.
func TestMakeInCache(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("HOME", cache)
	first, err := Make("", binary(t, "first"), "")
	if err != nil {
		t.Fatal(err)
	}
	second, err := Make("", binary(t, "second"), "")
	if err != nil || first == second || !strings.HasPrefix(first, cache) || contents(t, first) != "first first first" {
		t.Errorf("%s, %s, %v", first, second, err)
	}
}

// TestDirectoryCollectsAsInTheLastCallOfMake checks that a directory enables the garbage collector as in the last call of Make.
func TestDirectoryCollectsAsInTheLastCallOfMake(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("HOME", cache)
	source := binary(t, "content")
	plain, err := Make("", source, "")
	if err != nil {
		t.Fatal(err)
	}
	collecting, err := Make("", source, Collecting)
	if err != nil || collecting == plain {
		t.Fatalf("%s and %s, %v", plain, collecting, err)
	}
	listedIn := func(dir string) string {
		t.Helper()
		listed, err := Listed(pathOf(dir, role.APIServer))
		if err != nil {
			t.Fatal(err)
		}
		return listed
	}
	if got := listedIn(plain); got != "" {
		t.Errorf("without --collect, the directory lists %q", got)
	}
	if got := listedIn(collecting); got != "gc,namespace" {
		t.Errorf("with --collect, the directory lists %q", got)
	}
	dir := filepath.Join(t.TempDir(), "assets")
	for _, controllers := range []string{Collecting, Collecting, "", "", Collecting} {
		if _, err := Make(dir, source, controllers); err != nil {
			t.Fatal(err)
		}
		if got := listedIn(dir); got != controllers {
			t.Errorf("made for %q, the directory lists %q", controllers, got)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != len(role.All())+2 {
		t.Errorf("%d entries, %v", len(entries), err)
	}
}

// TestListBesideTheProgramIsFoundThroughLinks checks that the list beside the program is found through any path to it.
func TestListBesideTheProgramIsFoundThroughLinks(t *testing.T) {
	dir := t.TempDir()
	program := pathOf(dir, role.APIServer)
	if err := os.WriteFile(program, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, controllersFile)
	if err := os.WriteFile(list, []byte("namespace\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	for _, name := range []string{program, string(role.APIServer)} {
		if got, err := Listed(name); got != "namespace" || err != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if got, err := Listed("no-such-program"); got != "" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if err := os.WriteFile(list, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listed(program); err == nil || !strings.Contains(err.Error(), list) {
		t.Errorf("an empty list: %v", err)
	}
}

func TestMakeAtTheSameTime(t *testing.T) {
	dir, source := filepath.Join(t.TempDir(), "assets"), binary(t, "content")
	var making errgroup.Group
	for range 16 {
		making.Go(func() error {
			_, err := Make(dir, source, Collecting)
			return err
		})
	}
	if err := making.Wait(); err != nil || contents(t, dir) != "content content content" {
		t.Errorf("%v: %s", err, contents(t, dir))
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != len(role.All())+2 {
		t.Errorf("%d entries, %v", len(entries), err)
	}
}

// If the directory is not writable, the error contains a remedy.
func TestMakeNowhere(t *testing.T) {
	file := binary(t, "a file")
	if _, err := Make(filepath.Join(file, "assets"), file, ""); err == nil || !strings.Contains(err.Error(), "--dir") {
		t.Errorf("%v", err)
	}
}

func TestRemoveLeftovers(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	outside := t.TempDir()
	for name, test := range map[string]struct {
		dir      string
		wasEmpty bool
		stays    bool
	}{
		"envtest's":              {dir: filepath.Join(temporary, "k8s_test_framework_1")},
		"empty at first":         {dir: filepath.Join(temporary, "etcd-data"), wasEmpty: true},
		"a user's":               {dir: filepath.Join(temporary, "certificates"), stays: true},
		"outside":                {dir: filepath.Join(outside, "k8s_test_framework_2"), wasEmpty: true, stays: true},
		"all of temporary files": {dir: temporary, wasEmpty: true, stays: true},
	} {
		if err := os.MkdirAll(filepath.Join(test.dir, "member"), 0o700); err != nil {
			t.Fatal(err)
		}
		RemoveLeftovers(test.dir, test.wasEmpty)
		if _, err := os.Stat(test.dir); errors.Is(err, fs.ErrNotExist) == test.stays {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !IsEmpty(filepath.Join(outside, "missing")) || IsEmpty(outside) {
		t.Error("what is empty is not, or the other way round")
	}
}

func TestEtcdDataDir(t *testing.T) {
	t.Setenv("ETCD_DATA_DIR", "/environment")
	for line, want := range map[string]string{
		"":                                      "/environment",
		"--data-dir=/a --name n":                "/a",
		"-data-dir /b":                          "/b",
		"--name data-dir --data-dir /c":         "/c",
		"--data-dir=/a -data-dir=/d -wal-dir=/": "/d",
		"--data-dir":                            "/environment",
	} {
		if got := etcdDataDir(strings.Fields(line)); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}
