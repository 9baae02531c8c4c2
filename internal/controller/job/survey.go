package job

import (
	"cmp"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/pods"
)

// Observed is what there is of a job's pods.
type Observed struct {
	// Mine are the pods that the job controls.
	Mine []*corev1.Pod
	// Leaving are those of them whose deletion was asked for and is not seen yet.
	Leaving map[types.UID]bool
	// History is what Decide has returned for the job the last time, zero before.
	History History
}

// unindexed is the index of a pod that has none.
const unindexed = -1

// sighting is one pod, sorted.
type sighting struct {
	*corev1.Pod
	index   int
	tracked bool // it carries the finalizer: it was not counted to the end
	phase   phase
}

// isDiscarded tells of a pod that was ended and counts as nothing. (A pod that had been
// counted before it was deleted looks the same, and needs no counting either.)
func (s sighting) isDiscarded() bool { return !s.tracked && pods.IsTerminating(s.Pod) }

// phase is what a pod is to a job.
type phase int

const (
	active      phase = iota // runs, or is going to
	terminating              // is being deleted and still runs, and is not counted before it has ended
	leaving                  // is being deleted and may still run, but counts as failed already
	failed
	succeeded
)

// phaseOf sorts a pod. One that is being deleted has failed when nothing of it can run
// any more: no node has it, or its node has let go of it. Unless the job waits for its
// pods' ends, it has failed as soon as it is being deleted.
func phaseOf(pod *corev1.Pod, asked, patient bool) phase {
	switch {
	case pod.Status.Phase == corev1.PodSucceeded:
		return succeeded
	case pod.Status.Phase == corev1.PodFailed:
		return failed
	case !pods.IsTerminating(pod) && !asked:
		return active
	case !pods.IsTerminating(pod):
		return terminating // how it will end is not decided
	case pod.Spec.NodeName == "", pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0:
		return failed
	case patient:
		return terminating
	}
	return leaving
}

// waitsForEnds tells whether a pod is replaced only when it has ended.
func waitsForEnds(spec *batchv1.JobSpec) bool {
	return spec.PodFailurePolicy != nil || spec.PodReplacementPolicy != nil && *spec.PodReplacementPolicy == batchv1.Failed
}

// sight sorts the pods, the oldest first.
func sight(job *batchv1.Job, seen Observed) []sighting {
	list := make([]sighting, 0, len(seen.Mine))
	for _, pod := range seen.Mine {
		list = append(list, sighting{
			Pod: pod, index: indexOf(pod),
			tracked: Tracked(pod),
			phase:   phaseOf(pod, seen.Leaving[pod.UID], waitsForEnds(&job.Spec)),
		})
	}
	slices.SortFunc(list, func(a, b sighting) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// in are the pods in one of the phases.
func in(list []sighting, phases ...phase) []sighting {
	var found []sighting
	for _, s := range list {
		if slices.Contains(phases, s.phase) {
			found = append(found, s)
		}
	}
	return found
}

func podsOf(list []sighting) []*corev1.Pod {
	bare := make([]*corev1.Pod, len(list))
	for i, s := range list {
		bare[i] = s.Pod
	}
	return bare
}

// Tracked tells whether the pod carries the finalizer of a job.
func Tracked(pod *corev1.Pod) bool {
	return slices.Contains(pod.Finalizers, batchv1.JobTrackingFinalizer)
}

// indexOf is the completion index that the pod was made for.
func indexOf(pod *corev1.Pod) int {
	index, err := strconv.Atoi(pod.Annotations[batchv1.JobCompletionIndexAnnotation])
	if err != nil || index < 0 {
		return unindexed
	}
	return index
}

// failures are those of a pod's predecessors, for the same index: those that count, and
// those that do not.
func failures(pod *corev1.Pod) (counted, ignored int) {
	counted, _ = strconv.Atoi(pod.Annotations[batchv1.JobIndexFailureCountAnnotation])
	ignored, _ = strconv.Atoi(pod.Annotations[batchv1.JobIndexIgnoredFailureCountAnnotation])
	return counted, ignored
}
