package cri

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// contents returns the mode and the data of each file that a process finds in a volume.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "..") {
			continue
		}
		top, err := filepath.EvalSymlinks(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		err = filepath.WalkDir(top, func(at string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			info, err := os.Stat(at)
			if err != nil {
				return err
			}
			data, err := os.ReadFile(at)
			found[e.Name()+strings.TrimPrefix(at, top)] = info.Mode().String() + " " + string(data)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// TestNewContentsReplaceEarlierOnesAllAtOnce checks that new contents replace the earlier ones all at once, and that the same contents change nothing.
func TestNewContentsReplaceEarlierOnesAllAtOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "volumes", "v")
	for _, step := range []struct {
		name    string
		files   []file
		changed bool
		want    map[string]string
	}{
		{
			"the first",
			[]file{{path: "old", data: []byte("x"), mode: 0o644}, {path: "deep/a", data: []byte("1"), mode: 0o644}},
			true,
			map[string]string{"old": "-rw-r--r-- x", "deep/a": "-rw-r--r-- 1"},
		},
		{
			"others",
			[]file{{path: "deep/down/b", data: []byte("2"), mode: 0o400}, {path: "x", data: []byte("1"), mode: 0o755}},
			true,
			map[string]string{"deep/down/b": "-r-------- 2", "x": "-rwxr-xr-x 1"},
		},
		{
			"the same",
			[]file{{path: "deep/down/b", data: []byte("2"), mode: 0o400}, {path: "x", data: []byte("1"), mode: 0o755}},
			false,
			map[string]string{"deep/down/b": "-r-------- 2", "x": "-rwxr-xr-x 1"},
		},
		{
			"another mode",
			[]file{{path: "deep/down/b", data: []byte("2"), mode: 0o440}, {path: "x", data: []byte("1"), mode: 0o755}},
			true,
			map[string]string{"deep/down/b": "-r--r----- 2", "x": "-rwxr-xr-x 1"},
		},
		{"one less", []file{{path: "x", data: []byte("1"), mode: 0o755}}, true, map[string]string{"x": "-rwxr-xr-x 1"}},
		{"none", nil, true, map[string]string{}},
	} {
		open, err := os.Open(dir) // like a process that has the volume as its working directory
		changed, wrong := write(dir, step.files, owners{})
		if wrong != nil || changed != step.changed {
			t.Fatalf("%s: %t, %v", step.name, changed, wrong)
		}
		if diff := cmp.Diff(step.want, contents(t, dir)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
		if err == nil {
			before, _ := open.Stat()
			if now, err := os.Stat(dir); err != nil || !os.SameFile(before, now) {
				t.Errorf("%s: the directory that is mounted was replaced", step.name)
			}
			open.Close()
		}
		if kept, _ := filepath.Glob(filepath.Join(dir, dataPrefix+"*")); len(kept) != 1 {
			t.Errorf("%s: %v are left", step.name, kept)
		}
	}
	if above, err := os.Stat(filepath.Dir(dir)); err != nil || above.Mode().Perm() != 0o700 {
		t.Errorf("the directory above: %v, %v", above.Mode(), err)
	}
}

// TestWriteOverFiles checks that files from before links were used are replaced by links.
func TestWriteOverFiles(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := write(dir, []file{{path: "a", data: []byte("new"), mode: 0o644}}, owners{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"a": "-rw-r--r-- new"}, contents(t, dir)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
