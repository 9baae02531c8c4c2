package keyfile

import (
	"os"
	"path/filepath"
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
