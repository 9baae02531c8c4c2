package system

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func mustLock(t *testing.T, path string) *dataDir {
	t.Helper()
	d, err := lockDir(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.unlock)
	return d
}

func TestDataDirIsPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b")
	d := mustLock(t, path)
	if err := d.sign(holder{PID: 7}); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{"": 0o700, lockFile: 0o600, holderFile: 0o600} {
		info, err := os.Stat(filepath.Join(path, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != mode {
			t.Errorf("%q has mode %o, want %o", name, got, mode)
		}
	}
}

// The error of a locked directory names the holder, and says what to do.
func TestDataDirHasOneHolder(t *testing.T) {
	path := t.TempDir()
	d := mustLock(t, path)
	refusedWith := func(words ...string) {
		t.Helper()
		second, err := lockDir(path)
		if err == nil {
			second.unlock()
			t.Fatal("two hold it")
		}
		for _, word := range append(words, path, "--data-dir") {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%v, want %q", err, word)
			}
		}
	}
	refusedWith("in use by another process")
	if err := d.sign(holder{PID: 4711, Server: "https://127.0.0.1:6443", Started: time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)}); err != nil {
		t.Fatal(err)
	}
	refusedWith("in use by process 4711, which serves https://127.0.0.1:6443 since 2026-07-01T12:00:00Z")
	if err := os.WriteFile(filepath.Join(path, holderFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	refusedWith("in use by another process")
}

// The lock is authoritative, and ends with its holder; files of a killed holder do not block the next one.
func TestDataDirAfterItsHolder(t *testing.T) {
	path := t.TempDir()
	first := mustLock(t, path)
	if err := first.sign(holder{PID: 4711}); err != nil {
		t.Fatal(err)
	}
	if err := first.lock.Close(); err != nil { // like the end of the process
		t.Fatal(err)
	}
	second := mustLock(t, path)
	second.unlock()
	if _, err := os.Stat(filepath.Join(path, holderFile)); !os.IsNotExist(err) {
		t.Errorf("after its release: %v", err)
	}
	mustLock(t, path)
}

func TestHolderInWords(t *testing.T) {
	for want, h := range map[string]holder{
		"process 7":                            {PID: 7},
		"process 7, which serves https://a:1":  {PID: 7, Server: "https://a:1"},
		"process 7 since 2026-07-01T12:00:00Z": {PID: 7, Started: time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)},
	} {
		if got := h.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestDataDirThatCannotBe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, filepath.Join(file, "below")} {
		if _, err := lockDir(path); err == nil || !strings.Contains(err.Error(), "data directory") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestEphemeralDirGoes(t *testing.T) {
	named := filepath.Join(t.TempDir(), "named")
	d, err := openDir(Options{Ephemeral: true, DataDir: named})
	if err != nil {
		t.Fatal(err)
	}
	path := d.path
	if _, err := os.Stat(path); err != nil || path == named {
		t.Errorf("%s: %v", path, err)
	}
	d.close()
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("it is left: %v", err)
	}
	kept, err := openDir(Options{DataDir: named})
	if err != nil {
		t.Fatal(err)
	}
	kept.close()
	if _, err := os.Stat(named); err != nil {
		t.Errorf("a named one is gone: %v", err)
	}
}

func TestEphemeralDirWithin(t *testing.T) {
	within := filepath.Join(t.TempDir(), "certificates")
	d, err := openDir(Options{Ephemeral: true, TempDir: within})
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Dir(d.path) != within {
		t.Errorf("it is %s", d.path)
	}
	d.close()
	if entries, err := os.ReadDir(within); err != nil || len(entries) != 0 {
		t.Errorf("%d entries are left, %v", len(entries), err)
	}
}

func TestWritePrivateReplacesAsAWhole(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := os.WriteFile(path, []byte("something longer"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := writePrivate(path, []byte("short")); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil || string(data) != "short" {
		t.Errorf("%q %v", data, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v %v", info.Mode(), err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v are left, %v", entries, err)
	}
	if err := writePrivate(filepath.Join(dir, "missing", "file"), nil); err == nil {
		t.Error("no error for a directory that is not there")
	}
}

func TestDefaultDataDir(t *testing.T) {
	t.Setenv("HOME", "/home/somebody")
	for variable, want := range map[string]string{
		"":          "/home/somebody/.local/share/coppice",
		"/data":     "/data/coppice",
		"not/whole": "/home/somebody/.local/share/coppice",
	} {
		t.Setenv("XDG_DATA_HOME", variable)
		if got, err := DefaultDataDir(); err != nil || got != want {
			t.Errorf("XDG_DATA_HOME=%q: %q %v, want %q", variable, got, err, want)
		}
	}
	t.Setenv("XDG_DATA_HOME", "")
	t.Setenv("HOME", "")
	if _, err := DefaultDataDir(); err == nil || !strings.Contains(err.Error(), "--data-dir") {
		t.Errorf("without a home: %v", err)
	}
}
