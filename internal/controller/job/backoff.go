package job

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/controller/pods"
)

// Back-off for pods that replace failed ones, doubled with each failure.
const (
	firstBackoff = 10 * time.Second
	lastBackoff  = 10 * time.Minute
)

// backoffRecord holds the recent failures of a job, on which the back-off depends. It is kept in
// memory only: after a restart it is rebuilt from the pods that still exist. It is immutable.
type backoffRecord struct {
	failures int       // since the last success
	last     time.Time // when the last pod that counts in failures, or has succeeded, ended
	known    map[types.UID]bool
}

// after returns the record updated with the pods that have ended. Pods already in it count once.
// Pods that are gone are forgotten, but their failures are not.
func (r backoffRecord) after(succeeded, failed []*corev1.Pod) backoffRecord {
	type end struct {
		at     time.Time
		failed bool
	}
	var ends []end
	known := make(map[types.UID]bool, len(succeeded)+len(failed))
	note := func(list []*corev1.Pod, failed bool) {
		for _, pod := range list {
			if !r.known[pod.UID] {
				ends = append(ends, end{endOf(pod), failed})
			}
			known[pod.UID] = true
		}
	}
	note(succeeded, false)
	note(failed, true)
	slices.SortFunc(ends, func(a, b end) int {
		if order := a.at.Compare(b.at); order != 0 || a.failed == b.failed {
			return order
		}
		if b.failed {
			return -1 // the success first, of two that ended in the same second
		}
		return 1
	})
	next := backoffRecord{r.failures, r.last, known}
	for _, e := range ends {
		switch {
		case e.failed:
			next.failures++
		case !e.at.Before(next.last):
			next.failures = 0
		}
		if e.at.After(next.last) {
			next.last = e.at
		}
	}
	return next
}

// wait returns how long to wait before the next pod may be created.
func (r backoffRecord) wait(now time.Time) time.Duration { return backoff(r.failures, r.last, now) }

// backoff returns the remaining back-off after the last of that many failures.
func backoff(failures int, last, now time.Time) time.Duration {
	if failures == 0 {
		return 0
	}
	pause := lastBackoff
	if doubled := failures - 1; doubled < 10 {
		pause = min(pause, firstBackoff<<doubled)
	}
	return max(0, last.Add(pause).Sub(now))
}

// endOf returns when the pod ended: when the last of its containers ended; else when it was
// deleted; else the time of its last known change.
func endOf(pod *corev1.Pod) time.Time {
	var end time.Time
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if ended := s.State.Terminated; ended != nil && ended.FinishedAt.After(end) {
			end = ended.FinishedAt.Time
		}
	}
	switch {
	case !end.IsZero():
		return end
	case pod.DeletionTimestamp != nil && pod.DeletionGracePeriodSeconds != nil:
		return pod.DeletionTimestamp.Add(-pods.Seconds(*pod.DeletionGracePeriodSeconds))
	case pod.DeletionTimestamp != nil:
		return pod.DeletionTimestamp.Time
	}
	end = pod.CreationTimestamp.Time
	for _, c := range pod.Status.Conditions {
		if c.LastTransitionTime.After(end) {
			end = c.LastTransitionTime.Time
		}
	}
	return end
}
