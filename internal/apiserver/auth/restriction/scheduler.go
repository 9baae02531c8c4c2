package restriction

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
)

// checkSchedulerWrite allows bindings, Events, and the condition PodScheduled of pods.
func checkSchedulerWrite(_ context.Context, a admission.Attributes) error {
	switch a.GetOperation() {
	case admission.Create:
		return nil // its role limits creations
	case admission.Update:
		if a.GetResource().GroupResource() == corev1.Resource("events") {
			return checkCounted(a)
		}
		return checkPodScheduled(a)
	case admission.Delete, admission.Connect:
	}
	return errors.New("it can bind pods and report the condition PodScheduled only")
}

// checkPodScheduled allows changes of a pod's condition PodScheduled.
func checkPodScheduled(a admission.Attributes) error {
	old, was := a.GetOldObject().(*corev1.Pod)
	changed, is := a.GetObject().(*corev1.Pod)
	if !was || !is {
		return errors.New("it can update the status of pods only")
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
	if !equalExceptReferences(old, changed) {
		return errors.New("it can change the condition PodScheduled of a pod only")
	}
	return nil
}
