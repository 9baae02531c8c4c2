package resourcequota

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	quotav1 "k8s.io/apiserver/pkg/quota/v1"
)

const (
	// settlePeriod is the time in which an object has been created after it was charged, or never
	// will be.
	settlePeriod = 5 * time.Second
	// resyncPeriod is the interval at which every quota is counted again.
	resyncPeriod = 5 * time.Minute
)

// Count says when a quota has to be counted.
type Count struct {
	// Demanded is set if something may have been freed since it was counted, or something else is limited.
	Demanded bool
	// Charged is when its status changed last, and Began when it was counted last.
	Charged, Began time.Time
}

// Wait returns the time until the quota has to be counted; 0 if the count is due. Objects that admission has charged a
// moment ago may not be in the caches yet. A count at that time takes their charges away, and users can create more
// objects than the limit. So a quota that is being charged is counted on demand and at a resync only.
func (c Count) Wait(now time.Time) time.Duration {
	if c.Demanded || now.Sub(c.Began) >= resyncPeriod {
		return 0
	}
	return max(0, c.Charged.Add(settlePeriod).Sub(now))
}

// Decide returns the status that a quota should have, and whether it has another one. counted is what
// is in use of what could be counted. What could not be counted now is used as it was: admission may
// have charged it, and refuses what has never been counted.
func Decide(quota *corev1.ResourceQuota, counted corev1.ResourceList) (status corev1.ResourceQuotaStatus, changed bool) {
	status.Hard, status.Used = corev1.ResourceList{}, corev1.ResourceList{}
	for name, hard := range quota.Spec.Hard {
		status.Hard[name] = hard.DeepCopy()
		if used, ok := quota.Status.Used[name]; ok {
			status.Used[name] = used.DeepCopy()
		}
		if used, ok := counted[name]; ok {
			status.Used[name] = used.DeepCopy()
		}
	}
	isNew := quota.Status.Hard == nil || quota.Status.Used == nil
	return status, isNew || !quotav1.Equals(status.Hard, quota.Status.Hard) || !quotav1.Equals(status.Used, quota.Status.Used)
}
