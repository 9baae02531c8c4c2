package nodelifecycle

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/controller/pods"
	"github.com/coppice-dev/coppice/internal/rules/builtin"
)

// PodLimits are the limits beyond which pods are removed.
type PodLimits struct {
	// Finished is the number of finished pods that are kept.
	Finished int
	// Missing is how long a node must have been missing before its pods are removed.
	Missing time.Duration
}

// DefaultPodLimits returns kube-controller-manager's defaults.
func DefaultPodLimits() PodLimits { return PodLimits{Finished: 12500, Missing: builtin.NodeQuarantine} }

// tooManyFinished is the reason that depends on all pods.
const tooManyFinished builtin.PodGarbage = "it has finished, and more have than are kept"

// removal is a pod to remove.
type removal struct {
	Pod    *corev1.Pod
	Reason builtin.PodGarbage
}

// podsAndNodes is the state that the caches show.
type podsAndNodes struct {
	Pods  []*corev1.Pod
	Nodes map[string]*corev1.Node
	// MissedSince is, by node that pods are bound to, when the node was first found missing.
	MissedSince map[string]time.Time
}

// decideRemovals returns the pods to remove. wait is the time until a node that is missing now will have
// been missing for long enough; 0 means never.
func decideRemovals(seen podsAndNodes, limits PodLimits, now time.Time) (removals []removal, wait time.Duration) {
	gone := map[types.UID]bool{}
	remove := func(pod *corev1.Pod, why builtin.PodGarbage) {
		if !gone[pod.UID] {
			gone[pod.UID] = true
			removals = append(removals, removal{pod, why})
		}
	}
	for _, pod := range seen.Pods {
		switch reason := builtin.PodGarbageOf(pod, builtin.NodeStateOf(seen.Nodes[pod.Spec.NodeName])); reason {
		case "":
		case builtin.NodeGone:
			left := seen.missing(pod.Spec.NodeName, limits.Missing, now)
			if left <= 0 {
				remove(pod, reason)
			} else if wait == 0 || left < wait {
				wait = left
			}
		default:
			remove(pod, reason)
		}
	}
	for _, pod := range excess(seen.Pods, limits.Finished) {
		remove(pod, tooManyFinished)
	}
	return removals, wait
}

// missing returns the remaining time that a node must be missing.
func (o podsAndNodes) missing(node string, limit time.Duration, now time.Time) time.Duration {
	since, missed := o.MissedSince[node]
	if !missed {
		return limit
	}
	return since.Add(limit).Sub(now)
}

// excess returns the oldest finished pods beyond the limit; none if the limit is 0.
func excess(all []*corev1.Pod, limit int) []*corev1.Pod {
	var finished []*corev1.Pod
	for _, pod := range all {
		if pods.IsFinished(pod) && !pods.IsTerminating(pod) {
			finished = append(finished, pod)
		}
	}
	if limit <= 0 || len(finished) <= limit {
		return nil
	}
	slices.SortFunc(finished, func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return finished[:len(finished)-limit]
}
