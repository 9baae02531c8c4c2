package cri

import (
	"context"
	"fmt"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coppice-dev/coppice/internal/node/kubeletapi"
)

// Stream implements agent.Runtime. The runtime serves the stream on a port of its own,
// below a path with a token that is valid once and for one minute.
func (r *Runtime) Stream(ctx context.Context, of *corev1.Pod, s kubeletapi.StreamRequest) (*url.URL, error) {
	ctx = quiet(ctx)
	if s.Kind == kubeletapi.PortForward {
		return r.portForward(ctx, of, s)
	}
	c, id := find(of, s.Container), r.running(of, s.Container)
	if c == nil || id == "" {
		return nil, fmt.Errorf("container %w (%q)", kubeletapi.ErrNoContainer, s.Container)
	}
	if s.Kind == kubeletapi.Attach {
		answer, err := r.containers.Attach(ctx, attachRequest(s, id, c.TTY))
		return urlOf(answer, err)
	}
	answer, err := r.containers.Exec(ctx, &runtimeapi.ExecRequest{
		ContainerId: id, Cmd: s.Command, Stdin: s.Stdin, Stdout: s.Stdout, Stderr: s.Stderr && !s.TTY, Tty: s.TTY,
	})
	return urlOf(answer, err)
}

// attachRequest returns the request for the streams of a running process. Its terminal, if any,
// exists since its start; a terminal has no stderr.
func attachRequest(s kubeletapi.StreamRequest, id string, tty bool) *runtimeapi.AttachRequest {
	return &runtimeapi.AttachRequest{ContainerId: id, Stdin: s.Stdin, Stdout: s.Stdout, Stderr: s.Stderr && !tty, Tty: tty}
}

func (r *Runtime) portForward(ctx context.Context, of *corev1.Pod, s kubeletapi.StreamRequest) (*url.URL, error) {
	sandbox := r.Observe(of.UID).Sandbox
	if !sandbox.Ready {
		return nil, fmt.Errorf("pod %w (%q)", kubeletapi.ErrNoContainer, of.Name+"_"+of.Namespace)
	}
	answer, err := r.containers.PortForward(ctx, &runtimeapi.PortForwardRequest{PodSandboxId: sandbox.ID, Port: s.Ports})
	return urlOf(answer, err)
}

// urlOf returns the URL in a response of the runtime.
func urlOf(answer interface{ GetUrl() string }, err error) (*url.URL, error) {
	if err != nil {
		return nil, fmt.Errorf("ask the runtime for the stream: %w", err)
	}
	to, err := url.Parse(answer.GetUrl())
	if err != nil {
		return nil, fmt.Errorf("parse the address of the stream: %w", err)
	}
	return to, nil
}
