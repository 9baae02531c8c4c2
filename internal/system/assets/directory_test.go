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
	made, err := Make(dir, first, Settings{})
	if err != nil || made != dir || contents(t, dir) != "first first first" {
		t.Fatalf("%s, %v: %s", made, err, contents(t, dir))
	}
	before, err := os.Stat(pathOf(dir, role.Etcd))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Make(dir, first, Settings{}); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(pathOf(dir, role.Etcd)); err != nil || !os.SameFile(before, after) {
		t.Errorf("made twice: %v", err)
	}
	if _, err := Make(dir, binary(t, "second"), Settings{}); err != nil || contents(t, dir) != "second second second" {
		t.Errorf("%v: %s", err, contents(t, dir))
	}
	if err := os.Remove(pathOf(dir, role.Kubectl)); err != nil {
		t.Fatal(err)
	}
	if _, err := Make(dir, first, Settings{}); err != nil || contents(t, dir) != "first first first" {
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
	first, err := Make("", binary(t, "first"), Settings{})
	if err != nil {
		t.Fatal(err)
	}
	second, err := Make("", binary(t, "second"), Settings{})
	if err != nil || first == second || !strings.HasPrefix(first, cache) || contents(t, first) != "first first first" {
		t.Errorf("%s, %s, %v", first, second, err)
	}
}

// TestDirectoryHasTheSettingsOfTheLastCallOfMake checks that a directory has the settings of the last call of Make.
func TestDirectoryHasTheSettingsOfTheLastCallOfMake(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("HOME", cache)
	source := binary(t, "content")
	plain, err := Make("", source, Settings{})
	if err != nil {
		t.Fatal(err)
	}
	collecting, err := Make("", source, Settings{Controllers: Collecting})
	if err != nil || collecting == plain {
		t.Fatalf("%s and %s, %v", plain, collecting, err)
	}
	settingsOf := func(dir string) Settings {
		t.Helper()
		settings, err := SettingsBeside(pathOf(dir, role.APIServer))
		if err != nil {
			t.Fatal(err)
		}
		return settings
	}
	if got := settingsOf(plain); got != (Settings{}) {
		t.Errorf("without settings, the directory has %+v", got)
	}
	if got := settingsOf(collecting); got != (Settings{Controllers: "gc,namespace"}) {
		t.Errorf("with --collect, the directory has %+v", got)
	}
	dir := filepath.Join(t.TempDir(), "assets")
	for _, settings := range []Settings{{Controllers: Collecting}, {Controllers: Collecting}, {}, {}, {Kubernetes: "1.35"}, {Controllers: Collecting, Kubernetes: "1.36"}, {Controllers: Collecting}} {
		if _, err := Make(dir, source, settings); err != nil {
			t.Fatal(err)
		}
		if got := settingsOf(dir); got != settings {
			t.Errorf("made with %+v, the directory has %+v", settings, got)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != len(role.All())+2 {
		t.Errorf("%d entries, %v", len(entries), err)
	}
}

// TestSettingsBesideTheProgramAreFoundOnAnyPath checks that the settings beside the program are found through any path to it.
func TestSettingsBesideTheProgramAreFoundOnAnyPath(t *testing.T) {
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
		if got, err := SettingsBeside(name); got != (Settings{Controllers: "namespace"}) || err != nil {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if got, err := SettingsBeside("no-such-program"); got != (Settings{}) || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	if err := os.WriteFile(list, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := SettingsBeside(program); err == nil || !strings.Contains(err.Error(), list) {
		t.Errorf("an empty list: %v", err)
	}
}

func TestMakeAtTheSameTime(t *testing.T) {
	dir, source := filepath.Join(t.TempDir(), "assets"), binary(t, "content")
	var making errgroup.Group
	for range 16 {
		making.Go(func() error {
			_, err := Make(dir, source, Settings{Controllers: Collecting})
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
	if _, err := Make(filepath.Join(file, "assets"), file, Settings{}); err == nil || !strings.Contains(err.Error(), "--dir") {
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
