package cri

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOpenInside checks that a link may lead to any place inside a volume, and to none outside.
func TestOpenInside(t *testing.T) {
	volume, _ := tree(t)
	for path, want := range map[string]string{"own": "own", "file": "file", "inside": "own", "own/back": "file", "inside/back": "file"} {
		file, err := openInside(volume, path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		got, err := file.Stat()
		if err != nil {
			t.Fatal(err)
		}
		file.Close()
		if expected, err := os.Stat(filepath.Join(volume, want)); err != nil || !os.SameFile(got, expected) {
			t.Errorf("%s is not %s: %v", path, want, err)
		}
	}
	for _, path := range []string{"absolute", "absolute/secret", "up", "up/secret", "chain", "host", "host/etc", "own/away", "own/away/secret", "hanging", "..", "none"} {
		if file, err := openInside(volume, path); err == nil {
			file.Close()
			t.Errorf("%s was opened", path)
		}
	}
}

// canMount skips a test that has no permission to mount.
func canMount(t *testing.T) {
	t.Helper()
	at := t.TempDir()
	err := unix.Mount(at, at, "", unix.MS_BIND, "")
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		t.Skipf("this user may not mount: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := unmount(at); err != nil {
		t.Fatal(err)
	}
}

// TestBindPart checks that a part of a volume is mounted at a place that no container can change. Mounts are unmounted
// before the directory of a pod is removed, and the volume stays as it was.
func TestBindPart(t *testing.T) {
	canMount(t)
	volume, _ := tree(t)
	s, err := openStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.unbind("u"); err != nil {
			t.Error(err)
		}
	})
	for i, part := range []string{"own", "file", "inside", "new/deep"} {
		at, err := s.bindPart("u", "c", i, volume, part)
		if err != nil {
			t.Fatalf("%s: %v", part, err)
		}
		bound, err := os.Stat(at)
		if err != nil {
			t.Fatal(err)
		}
		if there, err := os.Stat(filepath.Join(volume, part)); err != nil || !os.SameFile(bound, there) {
			t.Errorf("%s is not mounted: %v", part, err)
		}
	}
	for _, part := range []string{"up", "absolute", "own/away", "file/new"} {
		if at, err := s.bindPart("u", "c", 9, volume, part); err == nil {
			t.Errorf("%s is mounted at %s", part, at)
		}
	}
	// Another instance of the container gets the current part.
	if err := errors.Join(os.Rename(filepath.Join(volume, "own"), filepath.Join(volume, "old")), os.Mkdir(filepath.Join(volume, "own"), 0o700)); err != nil {
		t.Fatal(err)
	}
	at, err := s.bindPart("u", "c", 0, volume, "own")
	if err != nil {
		t.Fatal(err)
	}
	bound, err := os.Stat(at)
	if err != nil {
		t.Fatal(err)
	}
	if there, err := os.Stat(filepath.Join(volume, "own")); err != nil || !os.SameFile(bound, there) {
		t.Errorf("the next instance gets the old directory: %v", err)
	}
	if err := s.remove("u"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(s.pod("u")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of the pod: %v", err)
	}
	for _, kept := range []string{"old/back", "file", "new/deep"} {
		if _, err := os.Lstat(filepath.Join(volume, kept)); err != nil {
			t.Errorf("the volume has lost %s: %v", kept, err)
		}
	}
}

// TestForeignMountStays checks that the contents of a foreign mount in the directory of a pod are not removed.
func TestForeignMountStays(t *testing.T) {
	canMount(t)
	volume, _ := tree(t)
	s, err := openStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(s.volume("u", "empty"), "foreign")
	if err := os.MkdirAll(at, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(volume, at, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	err = s.remove("u")
	if cleared := unmount(at); cleared != nil {
		t.Fatal(cleared)
	}
	if err == nil {
		t.Error("the directory was removed with a mount in it")
	}
	if _, err := os.Stat(filepath.Join(volume, "file")); err != nil {
		t.Errorf("the mounted directory has lost a file: %v", err)
	}
	if err := s.remove("u"); err != nil {
		t.Error(err)
	}
}

// TestModeOfANamedPipe checks that a named pipe that takes the place of a directory that was just made blocks nothing.
func TestModeOfANamedPipe(t *testing.T) {
	volume, _ := tree(t)
	if err := unix.Mkfifo(filepath.Join(volume, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(volume)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := setMode(root, "pipe", 0o777); err == nil {
		t.Error("its mode was set")
	}
}

func TestMountPointsBelow(t *testing.T) {
	const mountinfo = `22 1 0:21 / / rw - ext4 /dev/root rw
30 22 0:25 / /data/pods/u/subpaths/c/0 rw shared:1 - ext4 /dev/root rw
31 22 0:25 / /data/pods/u2/subpaths/c/0 rw - ext4 /dev/root rw
32 30 0:26 / /data/pods/u/subpaths/c/0/with\040space rw - tmpfs tmpfs rw
`
	want := []string{"/data/pods/u/subpaths/c/0/with space", "/data/pods/u/subpaths/c/0"}
	if got := mountPointsBelow(mountinfo, "/data/pods/u"); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
