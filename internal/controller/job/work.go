package job

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/controller/pods"
)

// endPods deletes the pods of a job that has an outcome. The pods of a failed job count as
// failed; the surplus pods of a successful job do not count.
func (d *decision) endPods(v *outcome) {
	list := limited(d.lessRefusedFirst(podsOf(in(d.pods, active))))
	if v.isFailure() {
		d.plan.Delete = list
	} else {
		d.plan.Discard = list
	}
}

// work keeps the desired number of pods running.
func (d *decision) work() {
	running := in(d.pods, active)
	want := d.wanted(len(running))
	d.plan.Discard = limited(d.lessRefusedFirst(d.surplus(running, want)))
	if slices.ContainsFunc(d.plan.Discard, func(pod *corev1.Pod) bool { return d.refused[pod.UID] == 0 }) {
		return // they are replaced once they are seen to be terminating
	}
	// Pods whose deletion was refused run on, for as long as they like. Each has the place of a pod.
	missing := want - len(running)
	if replacesWhenEnded(&d.job.Spec) {
		missing -= len(in(d.pods, terminating))
	}
	missing = min(missing, burst)
	if missing <= 0 {
		return
	}
	if wait := d.plan.Backoff.wait(d.now); wait > 0 && !isPerIndex(d.job) {
		d.requeueAfter(wait)
		return
	}
	if isIndexed(d.job) {
		d.plan.Create = d.nextIndexes(missing)
		return
	}
	for range missing {
		d.plan.Create = append(d.plan.Create, newPod{Index: unindexed})
	}
}

// wanted returns how many pods should run. No pod is started for a work queue once a pod has
// found it empty.
func (d *decision) wanted(running int) int {
	limit := parallelism(d.job)
	switch {
	case d.job.Spec.Completions != nil:
		return max(0, min(limit, int(*d.job.Spec.Completions)-d.succeeded-d.failedIndexes.Len()))
	case d.succeeded > 0:
		return min(limit, running)
	}
	return limit
}

// surplus returns the pods to delete: pods that could not be counted, pods whose index no
// longer needs them, and the excess of the rest.
func (d *decision) surplus(running []observedPod, want int) []*corev1.Pod {
	var idle, rest []*corev1.Pod
	taken := map[int]bool{}
	for _, pod := range running {
		switch {
		case !pod.tracked, isIndexed(d.job) && (taken[pod.index] || !d.isOpen(pod.index)):
			idle = append(idle, pod.Pod)
		default:
			taken[pod.index] = true
			rest = append(rest, pod.Pod)
		}
	}
	if over := len(rest) - want; over > 0 {
		idle = append(idle, d.lessRefusedFirst(pods.DeletionOrder(rest, rest, d.now))[:over]...)
	}
	return idle
}

// nextIndexes returns the lowest indexes that have no pod and may get one now.
func (d *decision) nextIndexes(n int) []newPod {
	taken := map[int]bool{}
	occupants := []state{active}
	if replacesWhenEnded(&d.job.Spec) {
		occupants = append(occupants, terminating)
	}
	for _, pod := range in(d.pods, occupants...) {
		taken[pod.index] = true
	}
	var next []newPod
	end := int(*d.job.Spec.Completions)
	for index := d.nextOpen(0); index < end && len(next) < n; index = d.nextOpen(index + 1) {
		if taken[index] {
			continue
		}
		pod := newPod{Index: index}
		if last, ok := d.retried[index]; ok {
			if wait := d.follow(&pod, last); wait > 0 {
				d.requeueAfter(wait)
				continue
			}
		}
		next = append(next, pod)
	}
	return next
}

// nextOpen returns the lowest index that has not ended, from an index on. It takes no step for each of the others, of which
// there may be two billion.
func (d *decision) nextOpen(index int) int {
	for {
		next := d.failedIndexes.NextOutside(d.completed.NextOutside(index))
		if next == index {
			return index
		}
		index = next
	}
}

// follow makes a pod the successor of a failed pod of the same index, and returns how long it
// has to wait.
func (d *decision) follow(pod *newPod, last observedPod) time.Duration {
	pod.Failures, pod.Ignored = failures(last.Pod)
	if isIgnored(d.job, last.Pod) {
		pod.Ignored = oneMore(pod.Ignored)
	} else {
		pod.Failures = oneMore(pod.Failures)
	}
	return backoff(pod.Failures+pod.Ignored, endOf(last.Pod), d.now)
}
