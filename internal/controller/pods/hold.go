package pods

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubectl/pkg/util/podutils"
)

// How long an interim status may wait. A status is interim if another one is expected before it is of use to anybody:
// then only the last one is written.
const (
	// EndHold is for an owner that is being deleted: its status is of interest again only if the deletion takes long.
	EndHold = 10 * time.Second
	// startHold is for an owner whose pods are starting, and startHoldEach for each of them: more pods start one after the
	// other for longer. MaxStartHold bounds the sum. A status that shows all pods ready never waits.
	startHold     = time.Second
	startHoldEach = 50 * time.Millisecond
	MaxStartHold  = 10 * time.Second
)

// freshness is the age up to which a pod that is not ready is expected to become ready soon.
const freshness = time.Minute

// StartHold returns how long the status of an owner with so many starting pods may wait.
func StartHold(starting int) time.Duration {
	return min(max(startHold, time.Duration(starting)*startHoldEach), MaxStartHold)
}

// IsStarting reports whether a pod that is bound to a node is expected to become ready soon.
func IsStarting(pod *corev1.Pod, now time.Time) bool {
	return pod.Spec.NodeName != "" && isFresh(pod, now)
}

// IsToBeBound reports whether a pod is expected to be bound to a node soon, in a cluster with nodes.
func IsToBeBound(pod *corev1.Pod, now time.Time) bool {
	scheduled := Condition(pod, corev1.PodScheduled)
	return pod.Spec.NodeName == "" && isFresh(pod, now) && (scheduled == nil || scheduled.Status != corev1.ConditionFalse)
}

func isFresh(pod *corev1.Pod, now time.Time) bool {
	return now.Sub(pod.CreationTimestamp.Time) <= freshness && !podutils.IsPodReady(pod)
}
