package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/release/internal/target"
)

// makePartial makes a release of the small program for some platforms, and returns its directory
// and its report.
func makePartial(t *testing.T, platforms string) (dir, report string) {
	t.Helper()
	dir = t.TempDir()
	var text strings.Builder
	if err := makeRelease(filepath.Join(dir, "source"), filepath.Join(dir, "dist"), made.server.URL, &text, "-targets", platforms); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "dist"), text.String()
}

// TestReleaseForOnePlatform: one platform has its script and its image, and the report lists the
// missing files of a full release.
func TestReleaseForOnePlatform(t *testing.T) {
	dir, report := makePartial(t, "linux/amd64,linux/amd64")
	_, omitted, _ := strings.Cut(report, "\nleft out:\n")
	for _, want := range []string{"  linux/arm64 in the image: it was not built\n", "  coppice.rb: it needs darwin/amd64, darwin/arm64, linux/arm64 besides\n"} {
		if !strings.Contains(omitted, want) {
			t.Errorf("the report does not have %q:\n%s", want, report)
		}
	}
	for name, exists := range map[string]bool{"install.sh": true, "coppice.yaml": true, "image.txt": true, "coppice.rb": false} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != exists {
			t.Errorf("%s: %v, want it there: %t", name, err, exists)
		}
	}
	var platforms []string
	for platform := range images(t, dir) {
		platforms = append(platforms, platform)
	}
	if !slices.Equal(platforms, []string{"linux/amd64"}) {
		t.Errorf("the image is for %v", platforms)
	}
	if krew := read(t, filepath.Join(dir, "coppice.yaml")); strings.Count(krew, "uri:") != 1 || !strings.Contains(krew, "linux-amd64.tar.gz") {
		t.Errorf("the krew manifest is\n%s", krew)
	}
}

// TestInstallScriptOnAnotherPlatform: the script of a partial release names its platforms to a
// machine of another one, downloads nothing, and installs on its own.
func TestInstallScriptOnAnotherPlatform(t *testing.T) {
	own := here(t)
	dir, _ := makePartial(t, own.String())
	for name, test := range map[string]struct{ system, machine, want string }{
		"a system":       {"SunOS", "x86_64", "not for SunOS"},
		"a machine":      {"Linux", "riscv64", "not for riscv64"},
		"a combination":  {"Linux", "aarch64", "not for linux/arm64"},
		"another system": {"Darwin", "x86_64", "not for darwin/amd64"},
	} {
		t.Run(name, func(t *testing.T) {
			if strings.HasSuffix(test.want, own.String()) {
				t.Skip("this machine is one")
			}
			fake := t.TempDir()
			uname := "#!/bin/sh\ncase $1 in -s) echo " + test.system + " ;; -m) echo " + test.machine + " ;; esac\n"
			if err := os.WriteFile(filepath.Join(fake, "uname"), []byte(uname), 0o755); err != nil {
				t.Fatal(err)
			}
			out, home, err := install(t, dir, "PATH="+fake+":"+os.Getenv("PATH"), "COPPICE_BASE_URL=http://127.0.0.1:1")
			if err == nil || !strings.Contains(out, "installs coppice for "+own.String()+", "+test.want) {
				t.Errorf("got %v and %q", err, out)
			}
			if entries, err := os.ReadDir(home); err != nil || len(entries) > 0 {
				t.Errorf("it left %v: %v", entries, err)
			}
		})
	}
	if out, _, err := install(t, dir); err != nil {
		t.Errorf("on %s: %v: %s", own, err, out)
	}
}

// TestReleaseForWindows: without Linux there is no image, and a script has nothing to install.
func TestReleaseForWindows(t *testing.T) {
	dir, report := makePartial(t, "windows/amd64")
	for _, want := range []string{
		"  the image, which the chart and the kustomizations name: it needs one of linux/amd64, linux/arm64\n",
		"  install.sh: it needs one of darwin/amd64, darwin/arm64, linux/amd64, linux/arm64\n",
	} {
		if !strings.Contains(report, want) {
			t.Errorf("the report does not have %q:\n%s", want, report)
		}
	}
	for _, name := range []string{"install.sh", "coppice.rb", "image.txt"} {
		if _, err := os.Stat(filepath.Join(dir, name)); !os.IsNotExist(err) {
			t.Errorf("%s: %v, want none", name, err)
		}
	}
	if krew := read(t, filepath.Join(dir, "coppice.yaml")); strings.Count(krew, "uri:") != 1 {
		t.Errorf("the krew manifest is\n%s", krew)
	}
}

func TestParsePlatforms(t *testing.T) {
	for list, want := range map[string]string{
		"":                                    "[darwin/amd64 darwin/arm64 linux/amd64 linux/arm64 windows/amd64 windows/arm64]",
		"windows/arm64,darwin/amd64":          "[darwin/amd64 windows/arm64]",
		"linux/arm64,linux/amd64,linux/arm64": "[linux/amd64 linux/arm64]",
	} {
		got, err := target.ParseList(list)
		var names []string
		for _, t := range got {
			names = append(names, t.String())
		}
		if text := "[" + strings.Join(names, " ") + "]"; err != nil || text != want {
			t.Errorf("%q: %s, %v; want %s", list, text, err, want)
		}
	}
	for _, list := range []string{",", "linux/amd64,", "linux"} {
		if got, err := target.ParseList(list); err == nil {
			t.Errorf("%q: %v, want an error", list, got)
		}
	}
}

// TestServeNeedsARelease: a directory without a release is refused, with the way to make one.
func TestServeNeedsARelease(t *testing.T) {
	err := run(t.Context(), []string{"-serve", t.TempDir()}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "make dist") {
		t.Errorf("got %v, want advice to run make dist", err)
	}
}
