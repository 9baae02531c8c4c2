package cri

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

func wantGone(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is still there: %v", path, err)
	}
}

// TestRemoveTree checks that a tree is removed after an interruption, too, and that no link in it is followed.
func TestRemoveTree(t *testing.T) {
	outside, top := filepath.Join(t.TempDir(), "outside"), filepath.Join(t.TempDir(), "top")
	for _, dir := range []string{"a/b/c/d", "a/b/e", "empty", movedPrefix + "1/left", movedPrefix + "2", movedPrefix + "3/left/below"} {
		if err := os.MkdirAll(filepath.Join(top, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(outside, "kept"), 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		if err := os.MkdirAll(filepath.Join(top, "wide", fmt.Sprint(i), "below"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for i := range entriesAtOnce + 10 { // more than one batch
		if err := os.WriteFile(filepath.Join(top, "a/b", fmt.Sprint(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, link := range []string{"link", "a/link", "a/b/link"} {
		if err := os.Symlink(outside, filepath.Join(top, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeTree(top); err != nil {
		t.Fatal(err)
	}
	wantGone(t, top)
	if _, err := os.Stat(filepath.Join(outside, "kept")); err != nil {
		t.Errorf("a link was followed: %v", err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(outside, link); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(removeTree(link), removeTree(top)); err != nil {
		t.Errorf("a link, and nothing: %v", err)
	}
	wantGone(t, link)
	if _, err := os.Stat(filepath.Join(outside, "kept")); err != nil {
		t.Errorf("a link was followed: %v", err)
	}
}

// TestRemovalHoldsUpNoOtherPod checks that the files of other pods can be written while those of a pod are being
// removed, and that nothing is kept of a pod whose files are not in use.
func TestRemovalHoldsUpNoOtherPod(t *testing.T) {
	r, pod, other := newFake().open(t, t.TempDir()), aPod(), aPod()
	other.UID = "u-2"
	for _, p := range []*corev1.Pod{pod, other} {
		p.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.7"}}
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		if err := r.prepare(p, newReferences()); err != nil {
			t.Fatal(err)
		}
	}
	unlock := r.files.lock(pod.UID) // as a removal that takes long
	removed, written := make(chan error, 1), make(chan error, 1)
	go func() { removed <- r.removeFiles(pod.UID) }()
	go func() {
		_, err := r.mountHosts(other, &other.Spec.Containers[0])
		written <- errors.Join(err, r.prepare(other, newReferences()), r.followPod(t.Context(), nil, other))
	}()
	eventually.Holds(t, "the files of the other pod are written", func() bool { return len(written) == 1 })
	if err := <-written; err != nil {
		t.Error(err)
	}
	eventually.Holds(t, "the removal waits for its pod", func() bool {
		r.files.mu.Lock()
		defer r.files.mu.Unlock()
		return r.files.locks[pod.UID].users == 2
	})
	if _, err := os.Stat(r.store.pod(pod.UID)); err != nil {
		t.Errorf("two removals of one pod at once: %v", err)
	}
	unlock()
	if err := <-removed; err != nil {
		t.Error(err)
	}
	wantGone(t, r.store.pod(pod.UID))
	r.files.mu.Lock()
	defer r.files.mu.Unlock()
	if n := len(r.files.locks); n != 0 {
		t.Errorf("%d locks are kept", n)
	}
}
