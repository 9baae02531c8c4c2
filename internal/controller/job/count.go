package job

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubectl/pkg/util/podutils"
)

// count moves pods that have ended into the status, and from there into the counters.
func (d *decision) count() {
	uncounted := d.settle()
	limit := 0
	if isIndexed(d.job) {
		limit = int(*d.job.Spec.Completions)
		// A value that cannot be parsed was not written by a controller: only existing pods
		// count.
		d.completed, _ = parseIndexes(d.job.Status.CompletedIndexes, limit)
		if d.job.Status.FailedIndexes != nil {
			d.failedIndexes, _ = parseIndexes(*d.job.Status.FailedIndexes, limit)
		}
	}
	recorded := map[types.UID]bool{}
	for _, uid := range slices.Concat(uncounted.Succeeded, uncounted.Failed) {
		recorded[uid], d.counted[uid] = true, true
	}
	d.succeeded = int(d.plan.Status.Succeeded) + len(uncounted.Succeeded)
	d.failed = int(d.plan.Status.Failed) + len(uncounted.Failed)
	d.countSuccesses(&uncounted, recorded, limit)
	d.countFailures(&uncounted, recorded)
	d.plan.Status.UncountedTerminatedPods = &uncounted
	if isIndexed(d.job) {
		d.succeeded = d.completed.Len()
		d.plan.Status.Succeeded = int32(d.succeeded)
		d.plan.Status.CompletedIndexes = d.completed.String()
	}
	if isPerIndex(d.job) {
		text := d.failedIndexes.String()
		d.plan.Status.FailedIndexes = &text
	}
}

// settle counts the pods in the status whose finalizers have been removed, and returns the
// others.
func (d *decision) settle() batchv1.UncountedTerminatedPods {
	tracked := map[types.UID]bool{}
	for _, pod := range d.pods {
		tracked[pod.UID] = pod.tracked
	}
	var rest batchv1.UncountedTerminatedPods
	old := d.job.Status.UncountedTerminatedPods
	if old == nil {
		return rest
	}
	for _, uid := range old.Succeeded {
		if tracked[uid] {
			rest.Succeeded = append(rest.Succeeded, uid)
		} else {
			d.plan.Status.Succeeded++
		}
	}
	for _, uid := range old.Failed {
		if tracked[uid] {
			rest.Failed = append(rest.Failed, uid)
		} else {
			d.plan.Status.Failed++
		}
	}
	return rest
}

func (d *decision) countSuccesses(uncounted *batchv1.UncountedTerminatedPods, recorded map[types.UID]bool, limit int) {
	var indexes []int
	for _, pod := range in(d.pods, succeeded) {
		switch {
		case !pod.tracked || recorded[pod.UID]:
		case isIndexed(d.job):
			if pod.index != unindexed && pod.index < limit && !d.failedIndexes.Has(pod.index) {
				indexes = append(indexes, pod.index)
			}
			d.counted[pod.UID] = true
		default:
			d.succeeded++
			if hasRoom(uncounted) {
				uncounted.Succeeded = append(uncounted.Succeeded, pod.UID)
				d.counted[pod.UID] = true
			}
		}
	}
	d.completed = d.completed.With(indexes...)
}

func (d *decision) countFailures(uncounted *batchv1.UncountedTerminatedPods, recorded map[types.UID]bool) {
	var indexes []int
	for _, pod := range in(d.pods, failed, leaving) {
		if !pod.tracked {
			continue
		}
		action, why := failureAction(d.job.Spec.PodFailurePolicy, pod.Pod)
		if action == batchv1.PodFailurePolicyActionFailJob && d.podFailure == "" {
			d.podFailure = why
		}
		if d.hasFailed(pod, action) {
			indexes = append(indexes, pod.index)
		} else if isPerIndex(d.job) {
			d.retry(pod)
		}
		switch {
		case recorded[pod.UID]:
		case action == batchv1.PodFailurePolicyActionIgnore:
			d.counted[pod.UID] = true
		default:
			d.failed++
			if hasRoom(uncounted) {
				uncounted.Failed = append(uncounted.Failed, pod.UID)
				d.counted[pod.UID] = true
			}
		}
	}
	d.failedIndexes = d.failedIndexes.With(indexes...)
}

// hasFailed reports whether the index of a failed pod has failed, too.
func (d *decision) hasFailed(pod observedPod, action batchv1.PodFailurePolicyAction) bool {
	if !isPerIndex(d.job) || pod.index == unindexed || pod.index >= int(*d.job.Spec.Completions) || d.completed.Has(pod.index) {
		return false
	}
	before, _ := failures(pod.Pod)
	switch action {
	case batchv1.PodFailurePolicyActionFailIndex:
		return true
	case batchv1.PodFailurePolicyActionIgnore:
		return false
	case batchv1.PodFailurePolicyActionCount, batchv1.PodFailurePolicyActionFailJob:
	}
	return before+1 > int(*d.job.Spec.BackoffLimitPerIndex)
}

// retry records the last failed pod of an index that must be retried. The pod keeps its
// finalizer until it has a successor: it is the only record of the failures.
func (d *decision) retry(pod observedPod) {
	if last, ok := d.retried[pod.index]; !ok || attempt(last.Pod) < attempt(pod.Pod) {
		d.retried[pod.index] = pod
	}
}

// attempt returns the number of pods of the index before this one.
func attempt(pod *corev1.Pod) int {
	counted, ignored := failures(pod)
	return counted + ignored
}

func hasRoom(u *batchv1.UncountedTerminatedPods) bool {
	return len(u.Succeeded)+len(u.Failed) < burst
}

// untrack plans to remove the finalizers of the counted pods, except of a pod that is the
// last record of an index's failures.
func (d *decision) untrack(end *outcome) {
	ended := end != nil || d.job.DeletionTimestamp != nil
	newest := map[int]int{}
	for _, pod := range d.pods {
		newest[pod.index] = max(newest[pod.index], attempt(pod.Pod))
	}
	for _, pod := range in(d.pods, succeeded, failed, leaving) {
		if !pod.tracked || !d.counted[pod.UID] {
			continue
		}
		last, isRecord := d.retried[pod.index]
		isRecord = isRecord && last.UID == pod.UID && attempt(pod.Pod) == newest[pod.index] && d.isOpen(pod.index)
		if ended || !isRecord {
			d.plan.Untrack = append(d.plan.Untrack, pod.Pod)
		}
	}
	d.plan.Untrack = limited(d.plan.Untrack) // the events of these enqueue the job again for the others
}

// isOpen reports whether the index still needs a pod.
func (d *decision) isOpen(index int) bool {
	return index != unindexed && index < int(*d.job.Spec.Completions) && !d.completed.Has(index) && !d.failedIndexes.Has(index)
}

// report writes the numbers of pods by state into the status.
func (d *decision) report() {
	running := in(d.pods, active)
	ready := 0
	for _, pod := range running {
		if podutils.IsPodReady(pod.Pod) {
			ready++
		}
	}
	count := func(n int) int32 { return int32(n) }
	readyNow, terminatingNow := count(ready), count(len(in(d.pods, terminating, leaving)))
	d.plan.Status.Active, d.plan.Status.Ready, d.plan.Status.Terminating = count(len(running)), &readyNow, &terminatingNow
}
