package keyfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
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
