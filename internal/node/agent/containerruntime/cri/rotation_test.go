package cri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	internalapi "k8s.io/cri-api/pkg/apis"

	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
)

// TestLargeLogIsRotated checks that a large log file is rotated, and that the newest files are kept and are removed with their
// container. If the runtime does not open another file, the log stays in place.
func TestLargeLogIsRotated(t *testing.T) {
	w, r := inCluster(t)
	pod := aPod()
	mustDo(t, r, pod, lifecycle.CreateSandbox{})
	mustDo(t, r, pod, lifecycle.Start{Container: "c"})
	id := r.Observe(pod.UID).Instances[0].ID
	path := r.store.log(pod.UID, "c", 0)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	logs := func() (found []string) {
		t.Helper()
		entries, err := os.ReadDir(filepath.Dir(path))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			text, err := os.ReadFile(filepath.Join(filepath.Dir(path), e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, string(text))
		}
		return found
	}
	const size = 8
	for n := range logFiles + 2 {
		r.rotate(t.Context(), size) // there is no log
		if err := os.WriteFile(path, fmt.Appendf(nil, "%d small", n), 0o600); err != nil {
			t.Fatal(err)
		}
		r.rotate(t.Context(), size)
		if text, err := os.ReadFile(path); err != nil || string(text) != fmt.Sprintf("%d small", n) {
			t.Fatalf("%q, %v", text, err)
		}
		if err := os.WriteFile(path, fmt.Appendf(nil, "%d larger", n), 0o600); err != nil {
			t.Fatal(err)
		}
		r.rotate(t.Context(), size)
		w.clock.Step(time.Minute)
	}
	if got, want := logs(), []string{"3 larger", "4 larger", "5 larger", "6 larger"}; !slices.Equal(got, want) {
		t.Errorf("kept %q, want %q", got, want)
	}
	mustDo(t, r, pod, lifecycle.Kill{ID: id, Container: "c"})
	if err := os.WriteFile(path, []byte("the last words"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.rotate(t.Context(), size)
	if got := logs(); !slices.Contains(got, "the last words") || len(got) != logFiles {
		t.Errorf("of a container that has ended: %q", got)
	}
	if now, err := os.ReadFile(path); err != nil || string(now) != "the last words" {
		t.Errorf("the log of a container that has ended was replaced: %q, %v", now, err)
	}
	mustDo(t, r, pod, lifecycle.Remove{ID: id})
	if got := logs(); len(got) != 0 {
		t.Errorf("left after the container: %q", got)
	}
}

// broken is a runtime that cannot open another file for a log.
type broken struct{ internalapi.RuntimeService }

// ReopenContainerLog implements internalapi.ContainerManager.
func (broken) ReopenContainerLog(context.Context, string) error { return errors.New("no") }

func TestRotateUndone(t *testing.T) {
	f, pod := newFake(), aPod()
	r := f.open(t, t.TempDir())
	mustDo(t, r, pod, lifecycle.CreateSandbox{})
	mustDo(t, r, pod, lifecycle.Start{Container: "c"})
	path := r.store.log(pod.UID, "c", 0)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("large"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.containers = broken{r.containers}
	if err := r.rotateLog(t.Context(), pod.UID, r.Observe(pod.UID).Instances[0], 1); err == nil {
		t.Error("no error")
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "large" {
		t.Errorf("%q, %v", text, err)
	}
}
