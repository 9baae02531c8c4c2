package job

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/controller/pods"
)

// Observed is the observed state of a job's pods.
type Observed struct {
	// Mine are the pods that the job controls.
	Mine []*corev1.Pod
	// Leaving are the pods among Mine whose deletion was requested but which the cache does not
	// yet show as terminating.
	Leaving map[types.UID]bool
	// Refused is how often the deletions of pods among Mine were refused.
	Refused map[types.UID]int
	// Backoff is the Plan.Backoff of the last Decide for the job, or zero.
	Backoff backoffRecord
}

// unindexed is the index of a pod that has none.
const unindexed = -1

// observedPod is a pod with its state and index in its job.
type observedPod struct {
	*corev1.Pod
	index   int
	tracked bool // it has the finalizer: it has not been fully counted
	state   state
}

// isDiscarded reports whether a pod was deleted and does not count. (A pod that had been
// counted before it was deleted looks the same, and needs no counting either.)
func (s observedPod) isDiscarded() bool { return !s.tracked && pods.IsTerminating(s.Pod) }

// state is the state of a pod from its job's point of view.
type state int

const (
	active      state = iota // is running or will run
	terminating              // is being deleted and still running, and is not counted until it has ended
	leaving                  // is being deleted and may still be running, but already counts as failed
	failed
	succeeded
)

// stateOf returns the state of a pod, whose deletion may have been requested. A pod that is
// being deleted has failed once it can no longer run: it is not bound to a node, or its node
// has set its grace period to 0. Unless the job replaces pods only when they have ended, it
// counts as failed as soon as it is being deleted.
func stateOf(pod *corev1.Pod, asked, replaceWhenEnded bool) state {
	switch {
	case pod.Status.Phase == corev1.PodSucceeded:
		return succeeded
	case pod.Status.Phase == corev1.PodFailed:
		return failed
	case !pods.IsTerminating(pod) && !asked:
		return active
	case !pods.IsTerminating(pod):
		return terminating // its result is still open
	case pod.Spec.NodeName == "", pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0:
		return failed
	case replaceWhenEnded:
		return terminating
	}
	return leaving
}

// replacesWhenEnded reports whether a pod is replaced only when it has ended.
func replacesWhenEnded(spec *batchv1.JobSpec) bool {
	return spec.PodFailurePolicy != nil || spec.PodReplacementPolicy != nil && *spec.PodReplacementPolicy == batchv1.Failed
}

// classify returns the pods with their states, oldest first.
func classify(job *batchv1.Job, seen Observed) []observedPod {
	list := make([]observedPod, 0, len(seen.Mine))
	for _, pod := range seen.Mine {
		list = append(list, observedPod{
			Pod: pod, index: indexOf(pod),
			tracked: isTracked(pod),
			state:   stateOf(pod, seen.Leaving[pod.UID], replacesWhenEnded(&job.Spec)),
		})
	}
	slices.SortFunc(list, func(a, b observedPod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// in returns the pods in one of the states.
func in(list []observedPod, states ...state) []observedPod {
	var found []observedPod
	for _, s := range list {
		if slices.Contains(states, s.state) {
			found = append(found, s)
		}
	}
	return found
}

func podsOf(list []observedPod) []*corev1.Pod {
	bare := make([]*corev1.Pod, len(list))
	for i, s := range list {
		bare[i] = s.Pod
	}
	return bare
}

// isTracked reports whether the pod carries the tracking finalizer of jobs.
func isTracked(pod *corev1.Pod) bool {
	return slices.Contains(pod.Finalizers, batchv1.JobTrackingFinalizer)
}

// indexOf returns the completion index for which the pod was created.
func indexOf(pod *corev1.Pod) int {
	index, err := strconv.Atoi(pod.Annotations[batchv1.JobCompletionIndexAnnotation])
	if err != nil || index < 0 {
		return unindexed
	}
	return index
}

// failures returns how many predecessors of a pod with the same index have failed, counted
// and ignored ones.
func failures(pod *corev1.Pod) (counted, ignored int) {
	return countIn(pod, batchv1.JobIndexFailureCountAnnotation), countIn(pod, batchv1.JobIndexIgnoredFailureCountAnnotation)
}

// countIn returns the number in an annotation; 0 if it is absent, or none that a controller has written: users may write
// anything there, also in the template of the job.
func countIn(pod *corev1.Pod, annotation string) int {
	n, err := strconv.ParseUint(pod.Annotations[annotation], 10, 31)
	if err != nil {
		return 0
	}
	return int(n)
}

// oneMore returns the next number, up to the largest that countIn reads: a larger one would begin at 0 again.
func oneMore(n int) int { return min(n+1, math.MaxInt32) }
