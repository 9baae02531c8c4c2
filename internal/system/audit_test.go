package system

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAuditLog(t *testing.T) {
	d := mustLock(t, t.TempDir())
	elsewhere := filepath.Join(t.TempDir(), "below", "audit")
	open := filepath.Join(t.TempDir(), "audit")
	if err := os.WriteFile(open, []byte("before\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for path, set := range map[string]string{d.join("audit.log"): "", elsewhere: elsewhere, open: open} {
		log, err := openAudit(Options{AuditPath: set}, d)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := log.Write([]byte("line\n")); err != nil {
			t.Fatal(err)
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", path, info, err)
		}
		text, err := os.ReadFile(path)
		if err != nil || !strings.HasSuffix(string(text), "line\n") || (path == open) != strings.HasPrefix(string(text), "before\n") {
			t.Errorf("%s: %q %v", path, text, err)
		}
	}
	if log, err := openAudit(Options{AuditPath: NoAuditLog}, d); log != nil || err != nil {
		t.Errorf("no audit log: %v %v", log, err)
	}
	if log, err := openAudit(Options{AuditPath: "-"}, d); log == nil || err != nil {
		t.Errorf("to standard output: %v %v", log, err)
	}
	if _, err := openAudit(Options{AuditPath: filepath.Join(open, "below")}, d); err == nil || !strings.Contains(err.Error(), "audit log") {
		t.Errorf("in a file: %v", err)
	}
}

// A request that ends after the server has stopped recreates neither the log nor its directory.
func TestAuditLogStaysClosed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "below")
	log, err := openAudit(Options{AuditPath: filepath.Join(dir, "audit")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := log.Write([]byte("line\n")); !errors.Is(err, os.ErrClosed) {
		t.Errorf("writing to it: %v", err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("its directory: %v", err)
	}
}
