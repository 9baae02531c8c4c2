// Package podgc is the pod garbage collector: it removes pods that no kubelet will remove. These
// are pods of nodes that are gone, terminating pods that were never bound to a node, and the
// oldest finished pods when there are too many. It does not look at owner references; the
// garbage collector handles these.
//
//	pods, nodes ──▶ Decide (pure) ──▶ for each pod: phase Failed, deleted with grace 0
//
// A pod of a node that does not exist is removed only after the node has been missing for a
// while and a live read has confirmed it: a node that is created again may have kept its pods.
package podgc

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/controller/pods"
)

// Limits are the limits beyond which pods are removed.
type Limits struct {
	// Finished is the number of finished pods that are kept.
	Finished int
	// Missing is how long a node must have been missing before its pods are removed.
	Missing time.Duration
}

// DefaultLimits returns kube-controller-manager's defaults.
func DefaultLimits() Limits { return Limits{Finished: 12500, Missing: 40 * time.Second} }

// Reason is the reason why a pod is removed.
type Reason string

// The reasons.
const (
	NodeGone        Reason = "the node it is bound to is gone"
	NeverBound      Reason = "it is terminating and is bound to no node"
	OutOfService    Reason = "it is terminating and its node is out of service"
	TooManyFinished Reason = "it has finished, and more have than are kept"
)

// Removal is a pod to remove.
type Removal struct {
	Pod    *corev1.Pod
	Reason Reason
}

// Observed is the state that the caches show.
type Observed struct {
	Pods  []*corev1.Pod
	Nodes map[string]*corev1.Node
	// MissedSince is, by node that pods are bound to, when the node was first found missing.
	MissedSince map[string]time.Time
}

// Decide returns the pods to remove. wait is the time until a node that is missing now will have
// been missing for long enough; 0 means never.
func Decide(seen Observed, limits Limits, now time.Time) (removals []Removal, wait time.Duration) {
	gone := map[types.UID]bool{}
	remove := func(pod *corev1.Pod, why Reason) {
		if !gone[pod.UID] {
			gone[pod.UID] = true
			removals = append(removals, Removal{pod, why})
		}
	}
	for _, pod := range seen.Pods {
		node, there := seen.Nodes[pod.Spec.NodeName]
		switch {
		case pod.Spec.NodeName == "" && pods.IsTerminating(pod):
			remove(pod, NeverBound)
		case pod.Spec.NodeName == "":
		case !there:
			left := seen.missing(pod.Spec.NodeName, limits.Missing, now)
			if left <= 0 {
				remove(pod, NodeGone)
			} else if wait == 0 || left < wait {
				wait = left
			}
		case pods.IsTerminating(pod) && outOfService(node):
			remove(pod, OutOfService)
		}
	}
	for _, pod := range excess(seen.Pods, limits.Finished) {
		remove(pod, TooManyFinished)
	}
	return removals, wait
}

// missing returns the remaining time that a node must be missing.
func (o Observed) missing(node string, limit time.Duration, now time.Time) time.Duration {
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

// outOfService reports whether a node is not ready and an administrator has tainted it as out
// of service: it will not come back.
func outOfService(node *corev1.Node) bool {
	ready := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	return !ready && slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}
