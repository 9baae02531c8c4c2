package cri

import (
	"context"
	"errors"
	"fmt"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
	"github.com/coppice-dev/coppice/internal/node/kubeletapi"
)

// streaming is a runtime that returns the request as its response.
type streaming struct{ *fake }

// Exec implements internalapi.ContainerManager.
func (streaming) Exec(_ context.Context, r *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	return &runtimeapi.ExecResponse{Url: fmt.Sprintf("http://127.0.0.1/%s/%v/%t%t%t%t", r.ContainerId, r.Cmd, r.Stdin, r.Stdout, r.Stderr, r.Tty)}, nil
}

// Attach implements internalapi.ContainerManager.
func (streaming) Attach(_ context.Context, r *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	return &runtimeapi.AttachResponse{Url: fmt.Sprintf("http://127.0.0.1/%s/%t%t%t%t", r.ContainerId, r.Stdin, r.Stdout, r.Stderr, r.Tty)}, nil
}

// PortForward implements internalapi.PodSandboxManager.
func (streaming) PortForward(_ context.Context, r *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	return &runtimeapi.PortForwardResponse{Url: fmt.Sprintf("http://127.0.0.1/%s/%v", r.PodSandboxId, r.Port)}, nil
}

// TestStreamReachesTheRunningInstance checks that streams are requested of the running instance, with a terminal only if the process has one.
func TestStreamReachesTheRunningInstance(t *testing.T) {
	f, pod := newFake(), aPod()
	r := f.open(t, t.TempDir())
	r.containers = streaming{f}
	exec := kubeletapi.StreamRequest{Kind: kubeletapi.Exec, Container: "c", Command: []string{"ls"}, Stdout: true, Stderr: true, TTY: true}
	attach := kubeletapi.StreamRequest{Kind: kubeletapi.Attach, Container: "c", Stdin: true, Stderr: true, TTY: true}
	ports := kubeletapi.StreamRequest{Kind: kubeletapi.PortForward, Ports: []int32{80}}
	other := exec
	other.Container = "other"
	nothing := func(when string) {
		t.Helper()
		for _, request := range []kubeletapi.StreamRequest{exec, attach, other} {
			if to, err := r.Stream(t.Context(), pod, request); !errors.Is(err, kubeletapi.ErrNoContainer) {
				t.Errorf("%s: %s of %s: %v, %v", when, request.Kind, request.Container, to, err)
			}
		}
	}
	nothing("before the start")
	if to, err := r.Stream(t.Context(), pod, ports); !errors.Is(err, kubeletapi.ErrNoContainer) {
		t.Errorf("ports of a pod without a sandbox: %v, %v", to, err)
	}
	mustDo(t, r, pod, lifecycle.CreateSandbox{})
	mustDo(t, r, pod, lifecycle.Start{Container: "c"})
	seen := r.Observe(pod.UID)
	id := bare(seen.Instances[0].ID)
	for _, test := range []struct {
		request kubeletapi.StreamRequest
		want    string
	}{
		{exec, id + "/[ls]/falsetruefalsetrue"},
		{attach, id + "/truefalsetruefalse"}, // the process was started without a terminal
		{ports, seen.Sandbox.ID + "/[80]"},
	} {
		to, err := r.Stream(t.Context(), pod, test.request)
		if err != nil || to.Host+to.Path != "127.0.0.1/"+test.want {
			t.Errorf("%s: %v, %v; want %s", test.request.Kind, to, err, test.want)
		}
	}
	mustDo(t, r, pod, lifecycle.Kill{ID: seen.Instances[0].ID, Container: "c"})
	nothing("after the end")
}
