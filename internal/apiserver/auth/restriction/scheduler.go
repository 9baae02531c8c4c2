package restriction

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
)

// schedulerWrites are bindings, Events, and in the status of a pod its one condition.
func schedulerWrites(_ context.Context, a admission.Attributes) error {
	switch a.GetOperation() {
	case admission.Create:
		return nil // of what its role lets it create
	case admission.Update:
		return schedulerReports(a)
	case admission.Delete, admission.Connect:
	}
	return errors.New("it binds pods, and says why it does not")
}

// schedulerReports: whether a pod has a node is all that it may say of it.
func schedulerReports(a admission.Attributes) error {
	old, was := a.GetOldObject().(*corev1.Pod)
	changed, is := a.GetObject().(*corev1.Pod)
	if !was || !is {
		return errors.New("it reports about pods only")
	}
	old, changed = old.DeepCopy(), changed.DeepCopy()
	for _, pod := range []*corev1.Pod{old, changed} {
		var others []corev1.PodCondition
		for _, c := range pod.Status.Conditions {
			if c.Type != corev1.PodScheduled {
				others = append(others, c)
			}
		}
		pod.Status.Conditions = others
	}
	if !sameButFor(old, changed) {
		return errors.New("of a pod it reports the condition PodScheduled only")
	}
	return nil
}
