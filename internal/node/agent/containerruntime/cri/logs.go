package cri

import (
	"context"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/cri-client/pkg/logs"

	"github.com/coppice-dev/coppice/internal/controller/pods"
	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
	"github.com/coppice-dev/coppice/internal/node/kubeletapi"
)

// Logs implements agent.Runtime. It reads the file that the container runtime writes. A
// followed log ends when the instance has ended.
func (r *Runtime) Logs(ctx context.Context, of *corev1.Pod, o *corev1.PodLogOptions) (io.ReadCloser, error) {
	seen := r.Observe(of.UID)
	instance := choose(seen.Instances, o)
	if instance == nil {
		which := "container"
		if o.Previous {
			which = "previous terminated container"
		}
		return nil, fmt.Errorf("%s %q in pod %q: %w", which, o.Container, of.Name, kubeletapi.ErrNoContainer)
	}
	path := r.store.log(of.UID, instance.Container, instance.Attempt)
	reader, writer := io.Pipe()
	ctx, cancel := context.WithCancel(quiet(ctx))
	go func() {
		defer cancel()
		stdout, stderr := streams(o, writer)
		writer.CloseWithError(logs.ReadLogs(ctx, path, bare(instance.ID), logOptions(o, r.clock.Now()), r.containers, stdout, stderr))
	}()
	return &tail{reader, cancel}, nil
}

// logOptions converts the options of a request.
func logOptions(o *corev1.PodLogOptions, now time.Time) *logs.LogOptions {
	options := &logs.LogOptions{TailLines: o.TailLines, LimitBytes: o.LimitBytes, Follow: o.Follow, Timestamp: o.Timestamps}
	switch {
	case o.SinceTime != nil:
		options.Since = o.SinceTime.Time
	case o.SinceSeconds != nil:
		options.Since = now.Add(-pods.Seconds(*o.SinceSeconds))
	}
	return options
}

// streams returns the writers for stdout and stderr. A stream that is not requested has none.
func streams(o *corev1.PodLogOptions, to io.Writer) (stdout, stderr io.Writer) {
	stdout, stderr = to, to
	if o.Stream != nil {
		switch *o.Stream {
		case corev1.LogStreamStdout:
			stderr = nil
		case corev1.LogStreamStderr:
			stdout = nil
		}
	}
	return stdout, stderr
}

// tail is an open log. Close stops reading it.
type tail struct {
	*io.PipeReader
	cancel context.CancelFunc
}

// Close implements io.Closer.
func (t *tail) Close() error {
	t.cancel()
	return t.PipeReader.Close()
}

// choose returns the requested instance: the last one of its container, or the previous one.
func choose(instances []lifecycle.Instance, o *corev1.PodLogOptions) *lifecycle.Instance {
	var last, before *lifecycle.Instance
	for i := range instances {
		instance := &instances[i]
		switch {
		case instance.Container != o.Container:
		case last == nil || instance.Attempt > last.Attempt:
			last, before = instance, last
		case before == nil || instance.Attempt > before.Attempt:
			before = instance
		}
	}
	if o.Previous {
		return before
	}
	return last
}
