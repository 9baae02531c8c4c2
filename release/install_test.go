package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// install runs the script of the release in a directory, and returns its output and its home directory.
func install(t *testing.T, dir string, environment ...string) (out, home string, err error) {
	t.Helper()
	if here(t).OS == "windows" {
		t.Skip("the script is for other systems")
	}
	home = t.TempDir()
	command := exec.Command("sh", filepath.Join(dir, "install.sh"))
	command.Dir = t.TempDir()
	command.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + home}, environment...)
	text, err := command.CombinedOutput()
	return string(text), home, err
}

func TestInstallScript(t *testing.T) {
	out, home, err := install(t, made.dir)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	installed := filepath.Join(home, ".local", "bin", "coppice")
	if strings.TrimSpace(out) != installed {
		t.Errorf("it printed %q, want %q", out, installed)
	}
	said, err := exec.Command(installed, "version").CombinedOutput()
	if err != nil || string(said) != "coppice version\n" {
		t.Errorf("the program says %q: %v", said, err)
	}
}

// TestInstallScriptFromAMirror: with another place and another prefix, which are those of the user.
func TestInstallScriptFromAMirror(t *testing.T) {
	mirror := httptest.NewServer(http.StripPrefix("/mirror of/coppice", http.FileServer(http.Dir(made.dir))))
	defer mirror.Close()
	prefix := filepath.Join(t.TempDir(), "with a space")
	out, home, err := install(t, made.dir, "COPPICE_BASE_URL="+mirror.URL+"/mirror%20of/coppice", "PREFIX="+prefix)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := os.Stat(filepath.Join(prefix, "bin", "coppice")); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(home); err != nil || len(entries) > 0 {
		t.Errorf("the home directory has %v: %v", entries, err)
	}
}

// TestInstallScriptRefusesWhatIsNotTheRelease: a place with other files installs nothing.
func TestInstallScriptRefusesWhatIsNotTheRelease(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"checksum": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("malice")) },
		"download": http.NotFound,
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(handler)
			defer server.Close()
			out, home, err := install(t, made.dir, "COPPICE_BASE_URL="+server.URL)
			if err == nil || !strings.Contains(out, name) {
				t.Errorf("got %v and %q, want an error about the %s", err, out, name)
			}
			if entries, err := os.ReadDir(home); err != nil || len(entries) > 0 {
				t.Errorf("it left %v: %v", entries, err)
			}
		})
	}
}
