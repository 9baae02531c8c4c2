package resourcequota

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	quotav1 "k8s.io/apiserver/pkg/quota/v1"
)

const (
	// settlePeriod is the time from the charge for an object after which the object either exists or will never be
	// created.
	settlePeriod = 5 * time.Second
	// resyncPeriod is the interval at which every quota is counted again.
	resyncPeriod = 5 * time.Minute
)

// Count says when a quota has to be counted.
type Count struct {
	// Demanded is set if the usage may have decreased since the last count, or the limits have changed.
	Demanded bool
	// Charged is the time when its status changed last or an object that it limits appeared, and Began the time of its
	// last count.
	Charged, Began time.Time
}

// Wait returns the time until the quota has to be counted; 0 if the count is due. Objects that admission has charged
// a moment ago may not be in the caches yet. A count at that time would remove their charges, and users could exceed
// the limit. So a quota that is being charged is counted on demand and at a resync only.
func (c Count) Wait(now time.Time) time.Duration {
	if c.Demanded || now.Sub(c.Began) >= resyncPeriod {
		return 0
	}
	return max(0, c.Charged.Add(settlePeriod).Sub(now))
}

// Decide returns the desired status of a quota, and reports whether it differs from the current one. counted is the
// usage of the resources that could be counted. Other resources keep their usage: admission may have charged it, and
// refuses resources that were never counted.
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
