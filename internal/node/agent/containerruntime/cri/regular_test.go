package cri

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
)

// hugeFile makes a file with a size of 1 TiB and no content, as a container may.
func hugeFile(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 1<<40); err != nil {
		t.Skipf("the file system has no files of this size: %v", err)
	}
}

// TestHugeFileIsNotRead checks that a file to which a container has given a huge size costs no memory.
func TestHugeFileIsNotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "etc-hosts")
	hugeFile(t, path)
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := writeInPlace(path, []byte("hosts")); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "hosts" {
		t.Errorf("%q, %v", text, err)
	}
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) || after.Mode().Perm() != 0o644 {
		t.Errorf("%v, %v", after, err)
	}
	r := newFake().open(t, t.TempDir())
	hugeFile(t, r.store.message("u-1", "c", 0))
	i := lifecycle.Instance{Container: "c", Finished: r.clock.Now()}
	if r.addMessage(t.Context(), "u-1", &i, nil); len(i.Message) != mostMessage {
		t.Errorf("a message of %d bytes", len(i.Message))
	}
	volume := filepath.Join(t.TempDir(), "v")
	files := []file{{path: "key", data: []byte("value"), mode: 0o644}}
	if _, err := write(volume, files, owners{}); err != nil {
		t.Fatal(err)
	}
	hugeFile(t, filepath.Join(volume, "key")) // a privileged container can write there
	if changed, err := write(volume, files, owners{}); err != nil || !changed {
		t.Errorf("changed %t, %v", changed, err)
	}
}

// TestWriteInPlaceKeepsTheSameText checks that a file that has the text already is not written again.
func TestWriteInPlaceKeepsTheSameText(t *testing.T) {
	path := filepath.Join(t.TempDir(), "etc-hosts")
	for _, text := range []string{"one", "two", "a longer text", ""} {
		for range 2 {
			if err := writeInPlace(path, []byte(text)); err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(path); err != nil || string(got) != text {
				t.Errorf("%q, %v; want %q", got, err, text)
			}
		}
	}
	if err := writeInPlace(path, []byte("same")); err != nil {
		t.Fatal(err)
	}
	read, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	if same, err := hasText(read, []byte("same")); err != nil || !same {
		t.Errorf("%t, %v", same, err)
	}
	if same, err := hasText(read, []byte("some")); err != nil || same {
		t.Errorf("%t, %v", same, err)
	}
}

// TestOnlyRegularFilesAreOpened checks that the agent opens no link and no directory in the place of a file that a
// container can change.
func TestOnlyRegularFilesAreOpened(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("of the node"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(secret, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, dir} {
		if err := writeInPlace(path, []byte("text")); err == nil {
			t.Errorf("%s was written", path)
		}
	}
	if text, err := os.ReadFile(secret); err != nil || string(text) != "of the node" {
		t.Errorf("%q, %v", text, err)
	}
	s, err := openStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	message, err := s.makeMessage("u-1", "c", 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(message); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, message); err != nil {
		t.Fatal(err)
	}
	if text := s.readMessage("u-1", "c", 0); text != "" {
		t.Errorf("the message is %q", text)
	}
	if _, err := s.makeMessage("u-1", "c", 0); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(secret); err != nil || string(text) != "of the node" {
		t.Errorf("%q, %v", text, err)
	}
}
