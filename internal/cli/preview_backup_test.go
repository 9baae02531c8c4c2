package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A command replaces the backup of its own last attempt, and no other file.
func TestBackupReplacesItsOwnFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "it.backup")
	own := &backupFlags{file: file}
	for _, content := range []string{"first", "second"} {
		if err := own.save([]byte(content)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != content {
			t.Errorf("%q, %v; want %q", got, err, content)
		}
	}
	isThere := func(f *backupFlags) bool {
		checked, saved := f.checkNew(), f.save([]byte("new"))
		return checked != nil && saved != nil && strings.Contains(checked.Error(), "already exists")
	}
	if !isThere(&backupFlags{file: file}) {
		t.Error("another command replaces the file")
	}
	other := file + ".other"
	if err := os.WriteFile(other, []byte("foreign"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(other, file); err != nil {
		t.Fatal(err)
	}
	if !isThere(own) {
		t.Error("the command replaces a file that somebody else has put there")
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := own.save([]byte("third")); err != nil {
		t.Errorf("after the file is gone: %v", err)
	}
	if err := new(backupFlags).checkNew(); err != nil {
		t.Errorf("without --backup: %v", err)
	}
}
