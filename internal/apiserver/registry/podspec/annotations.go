package podspec

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateAnnotations checks the annotations that mean something for a pod, or for those made from a
// template: how expendable it is among its siblings, and that its node runs it without the server.
func ValidateAnnotations(annotations map[string]string, spec *corev1.PodSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if node, static := annotations[corev1.MirrorPodAnnotationKey]; static && spec.NodeName == "" {
		errs = append(errs, field.Invalid(at.Key(corev1.MirrorPodAnnotationKey), node, "must set spec.nodeName if mirror pod annotation is set"))
	}
	if cost, given := annotations[corev1.PodDeletionCost]; given && !isCost(cost) {
		errs = append(errs, field.Invalid(at.Key(corev1.PodDeletionCost), cost, "must be a 32bit integer"))
	}
	return errs
}

// isCost reports whether a text is a number, in one way of writing it only: no plus sign, no leading
// zero.
func isCost(text string) bool {
	if _, err := strconv.ParseInt(text, 10, 32); err != nil || strings.HasPrefix(text, "+") {
		return false
	}
	return text == "0" || !strings.HasPrefix(text, "0")
}

// ValidateAnnotationsUpdate checks that what the node goes by when it runs a pod has not changed.
func ValidateAnnotationsUpdate(annotations, old map[string]string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	keys := maps.Clone(old)
	if keys == nil {
		keys = map[string]string{}
	}
	maps.Copy(keys, annotations)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		is, now := annotations[key]
		was, before := old[key]
		if now == before && is == was {
			continue
		}
		what := "mirror pod annotation"
		if strings.HasPrefix(key, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix) {
			what = "AppArmor annotations"
		} else if key != corev1.MirrorPodAnnotationKey {
			continue
		}
		verb := "may not remove or update "
		if !before {
			verb = "may not add "
		}
		errs = append(errs, field.Forbidden(at.Key(key), verb+what))
	}
	return errs
}
