package cri

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// nest makes directories inside of one another, with a file in some of them.
func nest(t *testing.T, dir string, depth int) {
	t.Helper()
	at, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_RDONLY, 0)
	for i := range depth {
		if err != nil {
			t.Fatal(err)
		}
		if i%100 == 0 {
			file, err := unix.Openat(at, "file", unix.O_CREAT|unix.O_WRONLY, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			_ = unix.Close(file)
		}
		if err := unix.Mkdirat(at, "d", 0o700); err != nil {
			t.Fatal(err)
		}
		var below int
		below, err = unix.Openat(at, "d", unix.O_DIRECTORY|unix.O_RDONLY|unix.O_NOFOLLOW, 0)
		_ = unix.Close(at)
		at = below
	}
	_ = unix.Close(at)
}

// fewFiles lets the process open few files until the test ends.
func fewFiles(t *testing.T, most uint64) {
	t.Helper()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: most, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Error(err)
		}
	})
}

// TestDeepVolumeIsRemoved checks that a volume is removed that is deeper than the process may open files, and than a path
// may be long.
func TestDeepVolumeIsRemoved(t *testing.T) {
	const depth = 2100
	r, pod := newFake().open(t, t.TempDir()), aPod()
	volume := r.store.volume(pod.UID, "data")
	if err := os.MkdirAll(volume, 0o700); err != nil {
		t.Fatal(err)
	}
	nest(t, volume, depth)
	fewFiles(t, 256)
	if err := os.RemoveAll(volume); err == nil {
		t.Fatal("os.RemoveAll removes it too")
	}
	if err := r.removeFiles(pod.UID); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(r.store.pod(pod.UID)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("left: %v", err)
	}
}

// TestPipesAreNotOpened checks that a named pipe in the place of a file holds up nothing.
func TestPipesAreNotOpened(t *testing.T) {
	s, err := openStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	path := s.message("u-1", "c", 0)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if text := s.readMessage("u-1", "c", 0); text != "" {
		t.Errorf("the message is %q", text)
	}
	if err := writeInPlace(path, []byte("text")); err == nil {
		t.Error("it was written")
	}
	if file, err := openRegular(path, os.O_RDWR); err == nil {
		file.Close()
		t.Error("it was opened")
	}
	if err := removeTree(filepath.Dir(path)); err != nil {
		t.Error(err)
	}
}
