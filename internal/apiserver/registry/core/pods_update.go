package core

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/podspec"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// podChangeable names the fields of a pod's spec that an update may change.
const podChangeable = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`," +
	"`spec.tolerations` (only additions to existing tolerations)," +
	"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"

// validatePodUpdate checks the changes of a pod's spec.
func validatePodUpdate(pod, old *corev1.Pod) field.ErrorList {
	spec := field.NewPath("spec")
	for _, list := range []struct {
		name    string
		is, was int
	}{
		{"containers", len(pod.Spec.Containers), len(old.Spec.Containers)},
		{"initContainers", len(pod.Spec.InitContainers), len(old.Spec.InitContainers)},
	} {
		if list.is != list.was {
			return append(validateChangedAnnotations(pod, old), field.Forbidden(spec.Child(list.name), "pod updates may not add or remove containers"))
		}
	}
	if deadline, at := pod.Spec.ActiveDeadlineSeconds, spec.Child("activeDeadlineSeconds"); deadline != nil {
		// An invalid deadline ends the validation. Only errors of annotations come before it.
		switch was := old.Spec.ActiveDeadlineSeconds; {
		case *deadline < 0 || *deadline > math.MaxInt32:
			return append(validateChangedAnnotations(pod, old), validate.InRange(*deadline, at, 0, math.MaxInt32)...)
		case was != nil && *deadline > *was:
			return append(validateChangedAnnotations(pod, old), field.Invalid(at, *deadline, "must be less than or equal to previous value"))
		}
	}
	// Allowed changes are undone one by one; any remaining difference is not allowed.
	undone := pod.Spec.DeepCopy()
	undoImages(undone.Containers, old.Spec.Containers)
	undoImages(undone.InitContainers, old.Spec.InitContainers)
	errs := append(validateChangedAnnotations(pod, old), undoDeadline(undone, &old.Spec, spec.Child("activeDeadlineSeconds"))...)
	if !onlyAdds(undone.Tolerations, old.Spec.Tolerations) {
		errs = append(errs, field.Forbidden(spec.Child("tolerations"), "existing toleration can not be modified except its tolerationSeconds"))
	}
	undone.Tolerations = old.Spec.Tolerations
	errs = append(errs, refuseNewGates(undone.SchedulingGates, old.Spec.SchedulingGates, spec.Child("schedulingGates"))...)
	undone.SchedulingGates = old.Spec.SchedulingGates
	errs = append(errs, undoPlacement(undone, &old.Spec, spec)...)
	if changed := changedFields(undone, &old.Spec); len(changed) > 0 {
		errs = append(errs, field.Forbidden(spec, fmt.Sprintf(
			"pod updates may not change fields other than %s\nchanged: %s", podChangeable, strings.Join(changed, ", "))))
	}
	return errs
}

// refuseNewGates checks that an update adds no scheduling gates. Of several gates with one name, the error names the
// last.
func refuseNewGates(gates, old []corev1.PodSchedulingGate, at *field.Path) field.ErrorList {
	known, last := sets.New(old...), map[corev1.PodSchedulingGate]int{}
	for i, gate := range gates {
		last[gate] = i
	}
	var errs field.ErrorList
	for i, gate := range gates {
		if !known.Has(gate) && last[gate] == i {
			errs = append(errs, field.Forbidden(at.Index(i).Child("name"), fmt.Sprintf("only deletion is allowed, but found new scheduling gate '%s'", gate.Name)))
		}
	}
	return errs
}

// validateChangedAnnotations checks the annotations that an update changes. Older ones may be from before this check
// existed.
func validateChangedAnnotations(pod, old *corev1.Pod) field.ErrorList {
	at := field.NewPath("metadata", "annotations")
	errs := podspec.ValidateAnnotationsUpdate(pod.Annotations, old.Annotations, at)
	if !maps.Equal(pod.Annotations, old.Annotations) || pod.Spec.NodeName != old.Spec.NodeName {
		errs = append(errs, podspec.ValidateAnnotations(pod.Annotations, &pod.Spec, at)...)
	}
	return errs
}

// undoImages undoes changes of images. A different number of containers remains a difference.
func undoImages(containers, old []corev1.Container) {
	if len(containers) != len(old) {
		return
	}
	for i := range containers {
		containers[i].Image = old[i].Image
	}
}

// undoDeadline undoes a change of the deadline. Clients can set and lower it, but not remove it.
func undoDeadline(spec, old *corev1.PodSpec, path *field.Path) field.ErrorList {
	deadline := spec.ActiveDeadlineSeconds
	spec.ActiveDeadlineSeconds = old.ActiveDeadlineSeconds
	if old.ActiveDeadlineSeconds != nil && deadline == nil {
		return field.ErrorList{field.Invalid(path, nil, "must not update from a positive integer to nil value")}
	}
	return nil
}

// onlyAdds reports whether all old tolerations are still there.
func onlyAdds(tolerations, old []corev1.Toleration) bool {
	there := map[corev1.Toleration]bool{}
	for _, t := range tolerations {
		t.TolerationSeconds = nil // the tolerated duration may change
		there[t] = true
	}
	for _, t := range old {
		t.TolerationSeconds = nil
		if !there[t] {
			return false
		}
	}
	return true
}

// changedFields returns the names of the fields in which two specs differ.
func changedFields(spec, old *corev1.PodSpec) []string {
	var changed []string
	a, b := reflect.ValueOf(spec).Elem(), reflect.ValueOf(old).Elem()
	for i := range a.NumField() {
		if !equality.Semantic.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			name, _, _ := strings.Cut(a.Type().Field(i).Tag.Get("json"), ",")
			changed = append(changed, "spec."+name)
		}
	}
	return changed
}
