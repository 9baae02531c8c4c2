package cri

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestSubPathOf(t *testing.T) {
	variables := []variable{{"POD_NAME", "web"}, {"UP", ".."}, {"ROOT", "/tmp"}, {"EMPTY", ""}}
	for _, test := range []struct{ path, expr, want, wrong string }{
		{"", "", "", ""},
		{"a/b", "", "a/b", ""},
		{"$(POD_NAME)", "", "$(POD_NAME)", ""},
		{"", "logs/$(POD_NAME)", "logs/web", ""},
		{"", "$$(POD_NAME)", "$(POD_NAME)", ""},
		{"", "$(EMPTY)", "", ""},
		{"", "$(NONE)/$(POD_NAME)", "", `missing value for "NONE"`},
		{"", "$(UP)", "", "must not contain '..'"},
		{"", "a/$(UP)/b", "", "must not contain '..'"},
		{"", "$(ROOT)", "", "must not be an absolute path"},
		{"/a", "", "", "must not be an absolute path"},
		{"../a", "", "", "must not contain '..'"},
		{"..a", "", "..a", ""},
	} {
		got, err := subPathOf(&corev1.VolumeMount{SubPath: test.path, SubPathExpr: test.expr}, variables)
		if got != test.want || (err == nil) != (test.wrong == "") || err != nil && !strings.Contains(err.Error(), test.wrong) {
			t.Errorf("%q, %q: %q, %v; want %q, %q", test.path, test.expr, got, err, test.want, test.wrong)
		}
	}
}

// tree creates a volume with links of all kinds, next to a directory that none of them may reach.
func tree(t *testing.T) (volume, outside string) {
	t.Helper()
	dir := t.TempDir()
	volume, outside = filepath.Join(dir, "volume"), filepath.Join(dir, "outside")
	for _, d := range []string{filepath.Join(volume, "own"), outside} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{filepath.Join(volume, "file"), filepath.Join(outside, "secret")} {
		if err := os.WriteFile(f, []byte(f), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{
		"inside": "own", "absolute": outside, "up": "../outside", "host": "/", "chain": "up", "own/back": "../file", "own/away": "../../outside", "hanging": "nothing",
	} {
		if err := os.Symlink(to, filepath.Join(volume, name)); err != nil {
			t.Fatal(err)
		}
	}
	return volume, outside
}

// TestMakePart checks that missing directories are created only inside the volume, with its mode.
func TestMakePart(t *testing.T) {
	volume, outside := tree(t)
	if err := os.Chmod(volume, 0o777|os.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"new", "new/deep/er", "own", "file", "inside/new"} {
		if err := makePart(volume, part); err != nil {
			t.Errorf("%s: %v", part, err)
		}
	}
	for _, part := range []string{"new", "new/deep/er", "own/new"} {
		if info, err := os.Stat(filepath.Join(volume, part)); err != nil || info.Mode() != os.ModeDir|os.ModeSetgid|0o777 {
			t.Errorf("%s is %v, %v", part, info, err)
		}
	}
	for _, part := range []string{"absolute/new", "up/new", "chain/new", "host/new", "own/away/new", "file/new"} {
		if err := makePart(volume, part); err == nil {
			t.Errorf("%s was made", part)
		}
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
		t.Errorf("outside of the volume are %v, %v", entries, err)
	}
	if err := makePart(filepath.Join(volume, "none"), "a"); err == nil {
		t.Error("a part of a volume that is not there was made")
	}
}

// TestModeOfAReplacedDirectory checks that a file or a directory keeps its mode when a link to it takes the place of a
// directory that was just made.
func TestModeOfAReplacedDirectory(t *testing.T) {
	volume, _ := tree(t)
	if err := os.Symlink("file", filepath.Join(volume, "to-file")); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(volume)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, part := range []string{"to-file", "inside", "file"} {
		before, err := os.Stat(filepath.Join(volume, part))
		if err != nil {
			t.Fatal(err)
		}
		if err := setMode(root, part, 0o777); err == nil {
			t.Errorf("%s: no error", part)
		}
		if after, err := os.Stat(filepath.Join(volume, part)); err != nil || after.Mode() != before.Mode() {
			t.Errorf("%s is %v, %v; was %v", part, after.Mode(), err, before.Mode())
		}
	}
}

// TestLinksResolveInsideOfTheirVolumeOnly checks that links inside a volume are resolved, also those with an absolute path, and that links which lead
// out of it are not.
func TestLinksResolveInsideOfTheirVolumeOnly(t *testing.T) {
	volume, outside := tree(t)
	for name, to := range map[string]string{"own/host": filepath.Join(volume, "own"), "escape": filepath.Join(volume, "..", "outside")} {
		if err := os.Symlink(to, filepath.Join(volume, name)); err != nil {
			t.Fatal(err)
		}
	}
	for part, want := range map[string]string{
		"own": "own", "new/deep": "new/deep", "inside": "own", "inside/new/deep": "own/new/deep", "own/back": "file",
		"own/host": "own", "own/host/new": "own/new", "own/host/back": "file", "hanging": "hanging",
		"absolute": "absolute", "up/secret": "up/secret", "chain/new": "chain/new", "escape": "escape", "host/etc": "host/etc",
	} {
		if got := resolve(volume, part); got != want {
			t.Errorf("%s: %s, want %s", part, got, want)
		}
	}
	if err := makePart(volume, resolve(volume, "own/host/made")); err != nil {
		t.Error(err)
	}
	if err := makePart(volume, resolve(volume, "escape/made")); err == nil {
		t.Errorf("a directory was made in %s", outside)
	}
}
