// Package containerruntime is what a node agent needs of whatever runs its containers.
package containerruntime

import (
	"context"
	"io"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/agent/lifecycle"
)

// Runtime runs the containers of pods. It is safe for concurrent use.
//
// It decides nothing: it carries out the steps of package lifecycle, and tells what there
// is. What it knows survives a restart of the agent, but for what Adopt gives back to it.
type Runtime interface {
	// Name and Version are reported in the status of the node.
	Name() string
	Version() string
	// Run does what has to be done in the background until ctx ends. It calls changed for
	// a pod whenever Observe may have something new to tell of it.
	Run(ctx context.Context, changed func(types.UID)) error
	// Adopt makes a pod known that this agent has not seen before; pod.Status is what was
	// last reported of it.
	Adopt(pod *corev1.Pod)
	// Observe returns the sandbox and the containers of a pod.
	Observe(uid types.UID) lifecycle.Observed
	// Known returns the pods that have a sandbox, containers or files.
	Known() []types.UID
	// Forget is about a pod that the API does not have any more, and of which nothing can
	// be observed. If it is Known still, by files that it left, it is not afterwards.
	Forget(uid types.UID)
	// Do begins a step about a pod, and calls done when it has ended, before it returns or
	// later. The error of Start is a lifecycle.StartError where the status of the pod has
	// words for it; that of a Probe tells that the container is not well.
	Do(ctx context.Context, pod *corev1.Pod, s lifecycle.Step, done func(error))
	// Logs are the lines that an instance of a container has written, oldest first.
	Logs(ctx context.Context, pod *corev1.Pod, o *corev1.PodLogOptions) (io.ReadCloser, error)
}
