package cri

import (
	"context"
	"log/slog"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	apitest "k8s.io/cri-api/pkg/apis/testing"

	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
)

// slowImages are images whose pull ends with its context.
type slowImages struct {
	*apitest.FakeImageService

	pulling chan struct{}
}

// PullImage implements internalapi.ImageManagerService.
func (s slowImages) PullImage(ctx context.Context, _ *runtimeapi.ImageSpec, _ *runtimeapi.AuthConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	s.pulling <- struct{}{}
	<-ctx.Done()
	return "", ctx.Err()
}

// TestGiveUp checks that GiveUp ends the pull of one container of one pod, and its start. Without a start under way, it
// has no effect.
func TestGiveUp(t *testing.T) {
	f, pod := newFake(), aPod()
	slow := slowImages{f.images, make(chan struct{}, 2)}
	r, err := open(t.Context(), Config{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}, services{f, slow})
	if err != nil {
		t.Fatal(err)
	}
	other := aPod()
	other.UID = "u-2"
	mustDo(t, r, pod, lifecycle.GiveUp{Container: "c"})
	mustDo(t, r, pod, lifecycle.CreateSandbox{})
	mustDo(t, r, other, lifecycle.CreateSandbox{})
	ended, stays := make(chan error, 1), make(chan error, 1)
	r.Do(t.Context(), pod, lifecycle.Start{Container: "c"}, func(err error) { ended <- err })
	ctx, stop := context.WithCancel(t.Context())
	r.Do(ctx, other, lifecycle.Start{Container: "c"}, func(err error) { stays <- err })
	<-slow.pulling
	<-slow.pulling
	mustDo(t, r, pod, lifecycle.GiveUp{Container: "none"})
	mustDo(t, r, pod, lifecycle.GiveUp{Container: "c"})
	if err := <-ended; err == nil {
		t.Error("a container started whose image could not be pulled")
	}
	if got := r.Observe(pod.UID); len(got.Instances) != 0 {
		t.Errorf("instances %+v", got.Instances)
	}
	select {
	case err := <-stays:
		t.Errorf("the start of another pod's container ended: %v", err)
	default:
	}
	stop()
	<-stays
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.pulls) != 0 {
		t.Errorf("%d pulls are known that have ended", len(r.pulls))
	}
}

// TestStopSandboxKeepsContainers checks that a stopped sandbox keeps its dead containers.
func TestStopSandboxKeepsContainers(t *testing.T) {
	f, pod := newFake(), aPod()
	r := f.open(t, t.TempDir())
	mustDo(t, r, pod, lifecycle.CreateSandbox{})
	mustDo(t, r, pod, lifecycle.Start{Container: "c"})
	before := r.Observe(pod.UID)
	mustDo(t, r, pod, lifecycle.Kill{ID: before.Instances[0].ID, Container: "c"})
	mustDo(t, r, pod, lifecycle.StopSandbox{ID: before.Sandbox.ID})
	if got := r.Observe(pod.UID); got.Sandbox.Ready || got.Sandbox.ID != before.Sandbox.ID || len(got.Instances) != 1 {
		t.Errorf("%+v", got)
	}
}
