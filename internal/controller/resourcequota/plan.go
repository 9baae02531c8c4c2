package resourcequota

import (
	corev1 "k8s.io/api/core/v1"
	quotav1 "k8s.io/apiserver/pkg/quota/v1"
)

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
