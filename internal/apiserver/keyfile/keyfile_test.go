package keyfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestKeyIsPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pki", "key")
	if _, err := Load(path); !IsMissing(err) {
		t.Errorf("before there is one: %v", err)
	}
	if err := Store(path, []byte("secret")); err != nil {
		t.Fatal(err)
	}
	mode := func(path string) os.FileMode {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode().Perm()
	}
	if key, dir := mode(path), mode(filepath.Dir(path)); key != 0o600 || dir != 0o700 {
		t.Errorf("modes %o and %o", key, dir)
	}
	for _, loose := range []os.FileMode{0o644, 0o660, 0o604} {
		if err := os.Chmod(path, loose); err != nil {
			t.Fatal(err)
		}
		if key, err := Load(path); err != nil || string(key) != "secret" || mode(path) != 0o600 {
			t.Errorf("from %o: %q %v, mode %o", loose, key, err, mode(path))
		}
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("%v are left, %v", entries, err)
	}
}

// TestOfTwoKeysOneIsStored makes two keys after both processes have found no file: the second one gets the first key.
func TestOfTwoKeysOneIsStored(t *testing.T) {
	path := filepath.Join(t.TempDir(), "coppice", "backup.key")
	first, made, err := makeKey(path)
	if err != nil || !made {
		t.Fatal(made, err)
	}
	second, made, err := makeKey(path)
	if err != nil || made {
		t.Fatal(made, err)
	}
	stored, err := LoadKey(path)
	if err != nil {
		t.Fatal(err)
	}
	if first.ID() != stored.ID() || second.ID() != stored.ID() {
		t.Errorf("keys %s and %s, and %s is stored", first.ID(), second.ID(), stored.ID())
	}
}

func TestKeysThatAreMadeAtTheSameTimeAreOne(t *testing.T) {
	const processes = 16
	path := filepath.Join(t.TempDir(), "backup.key")
	ids, makers := make([]string, processes), make([]int, processes)
	var all sync.WaitGroup
	for i := range processes {
		all.Go(func() {
			key, made, err := LoadOrMakeKey(path)
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = key.ID()
			if made {
				makers[i] = 1
			}
		})
	}
	all.Wait()
	stored, err := LoadKey(path)
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for i, id := range ids {
		total += makers[i]
		if id != stored.ID() {
			t.Errorf("key %s, and %s is stored", id, stored.ID())
		}
	}
	if total != 1 {
		t.Errorf("%d have made the key", total)
	}
}

// TestCreateKeepsAnExistingKey checks both ways of creating a file: with and without hard links.
func TestCreateKeepsAnExistingKey(t *testing.T) {
	for name, create := range map[string]func(path string, key []byte) error{"link": Create, "in place": createInPlace} {
		path := filepath.Join(t.TempDir(), "key")
		if err := create(path, []byte("first")); err != nil {
			t.Fatal(name, err)
		}
		if err := create(path, []byte("second")); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s: %v, want an error about the existing file", name, err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(name, err)
		}
		if key, err := os.ReadFile(path); err != nil || string(key) != "first" || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %q with mode %o, %v", name, key, info.Mode().Perm(), err)
		}
		if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
			t.Errorf("%s: %v are left, %v", name, entries, err)
		}
	}
}

// TestKeyBehindADanglingLink checks that the error about a link to a missing file names both, and what to do: the key may
// be on a disk that is not mounted.
func TestKeyBehindADanglingLink(t *testing.T) {
	disk := filepath.Join(t.TempDir(), "disk")
	path, target := filepath.Join(t.TempDir(), "backup.key"), filepath.Join(disk, "key")
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
	_, made, err := LoadOrMakeKey(path)
	if made || err == nil || !strings.Contains(err.Error(), path+" is a link to "+target+", which does not exist: mount its disk") {
		t.Fatalf("%t %v", made, err)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("%v are left, %v", entries, err)
	}
	if err := os.Mkdir(disk, 0o700); err != nil {
		t.Fatal(err)
	}
	first, made, err := LoadOrMakeKey(target)
	if err != nil || !made {
		t.Fatal(made, err)
	}
	if key, made, err := LoadOrMakeKey(path); err != nil || made || key.ID() != first.ID() {
		t.Errorf("through the link: made is %t, %v", made, err)
	}
}

// TestPartOfAKey checks that the error about a part of a key says what to do: a process that is killed while it makes a key
// may leave it, where the file system has no hard links.
func TestPartOfAKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "backup.key")
	if err := createInPlace(path, []byte("abcd")); err != nil {
		t.Fatal(err)
	}
	_, made, err := LoadOrMakeKey(path)
	if made || err == nil || !strings.Contains(err.Error(), path+" has no key") || !strings.Contains(err.Error(), "remove the file") {
		t.Errorf("%t %v", made, err)
	}
}
