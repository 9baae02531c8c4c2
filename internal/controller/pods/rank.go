package pods

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubectl/pkg/util/podutils"
)

// DeletionOrder returns the pods of one owner in the order in which they are deleted when there
// are too many:
//
//  1. not bound to a node
//  2. pending, then of unknown phase, then running
//  3. not ready
//  4. with the lower deletion cost, controller.kubernetes.io/pod-deletion-cost
//  5. on a node where more of the owner's pods are
//  6. ready for a shorter time, where the times differ by an order of magnitude
//  7. restarted more often
//  8. created later
//
// and finally by name, so that the order is deterministic. related are the pods that count for
// 5, which may include more than the given pods.
func DeletionOrder(list, related []*corev1.Pod, now time.Time) []*corev1.Pod {
	onNode := map[string]int{}
	for _, pod := range related {
		if pod.Spec.NodeName != "" && IsActive(pod) {
			onNode[pod.Spec.NodeName]++
		}
	}
	ordered := slices.Clone(list)
	slices.SortFunc(ordered, func(a, b *corev1.Pod) int {
		return cmp.Or(
			falseFirst(a.Spec.NodeName != "", b.Spec.NodeName != ""),
			cmp.Compare(phaseRank(a), phaseRank(b)),
			falseFirst(podutils.IsPodReady(a), podutils.IsPodReady(b)),
			cmp.Compare(DeletionCost(a), DeletionCost(b)),
			cmp.Compare(onNode[b.Spec.NodeName], onNode[a.Spec.NodeName]),
			cmp.Compare(readyFor(a, now), readyFor(b, now)),
			cmp.Compare(restarts(b), restarts(a)),
			b.CreationTimestamp.Compare(a.CreationTimestamp.Time),
			cmp.Compare(a.Name, b.Name),
		)
	})
	return ordered
}

// LessRefused returns an order by the number of refused deletions, so that a protected pod holds back no other one, and is
// tried again in its turn.
func LessRefused(refused map[types.UID]int) func(a, b *corev1.Pod) int {
	return func(a, b *corev1.Pod) int { return cmp.Compare(refused[a.UID], refused[b.UID]) }
}

func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func phaseRank(pod *corev1.Pod) int {
	switch pod.Status.Phase {
	case corev1.PodPending, "":
		return 0
	case corev1.PodUnknown:
		return 1
	default:
		return 2
	}
}

// DeletionCost returns the value of the pod's annotation; 0 if it is absent or not a number.
func DeletionCost(pod *corev1.Pod) int32 {
	cost, err := strconv.ParseInt(pod.Annotations[corev1.PodDeletionCost], 10, 32)
	if err != nil {
		return 0
	}
	return int32(cost)
}

// readyFor returns the order of magnitude of the time that the pod has been ready: the number of
// binary digits of its seconds.
func readyFor(pod *corev1.Pod, now time.Time) int {
	if !podutils.IsPodReady(pod) {
		return 0
	}
	seconds := int(now.Sub(Condition(pod, corev1.PodReady).LastTransitionTime.Time) / time.Second)
	digits := 0
	for ; seconds > 0; seconds /= 2 {
		digits++
	}
	return digits
}

func restarts(pod *corev1.Pod) int32 {
	var most int32
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, s := range list {
			most = max(most, s.RestartCount)
		}
	}
	return most
}
