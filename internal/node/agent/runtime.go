package agent

import (
	"context"
	"io"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
	"github.com/coppice-dev/coppice/internal/node/kubeletapi"
)

// Runtime is the container runtime of an agent: it runs the containers of pods. It is safe for concurrent use.
//
// It makes no decisions: it carries out the steps of package lifecycle, and reports the state of
// sandboxes and containers. That state survives a restart of the agent, apart from the part that
// Adopt restores.
//
// A runtime that can fail also has Healthy() error, which returns why it cannot be used, or nil. The node is not ready
// meanwhile.
type Runtime interface {
	// Name and Version are reported in the node's status.
	Name() string
	Version() string
	// Run does the runtime's background work until ctx ends. It calls changed for a pod whenever
	// the result of Observe may have changed.
	Run(ctx context.Context, changed func(types.UID)) error
	// Adopt tells the runtime about a pod that is new to this agent; pod.Status is the last reported status. The agent may
	// repeat it. It adopts all pods that have been started before it begins its first step.
	Adopt(pod *corev1.Pod)
	// Update tells the runtime about the current version of a pod in the API, before its steps and
	// after each change.
	Update(pod *corev1.Pod)
	// Observe returns the sandbox and the containers of a pod.
	Observe(uid types.UID) lifecycle.Observed
	// Known returns the pods that have a sandbox, containers or files on the node.
	Known() []types.UID
	// Forget is called for a pod that is no longer in the API and for which Observe returns
	// nothing, not even Unknown. If files of the pod keep it in Known, Forget removes them.
	Forget(uid types.UID)
	// Do begins a step for a pod, and calls done when the step has ended, which may be before Do
	// returns. The error of Start is a lifecycle.StartError if the pod's status has a reason for
	// it; the error of a Probe means that the container is unhealthy, unless it is a
	// lifecycle.UndecidedError.
	Do(ctx context.Context, pod *corev1.Pod, s lifecycle.Step, done func(error))
	// Stream returns the URL at which the runtime serves a stream to a container or a pod. It is
	// valid once, for every client that knows it. The error is kubeletapi.ErrNoContainer if
	// nothing runs there, and kubeletapi.ErrNoProcesses if the runtime runs no processes.
	Stream(ctx context.Context, pod *corev1.Pod, r kubeletapi.StreamRequest) (*url.URL, error)
	// Logs returns the lines that an instance of a container has written, oldest first.
	Logs(ctx context.Context, pod *corev1.Pod, o *corev1.PodLogOptions) (io.ReadCloser, error)
}
