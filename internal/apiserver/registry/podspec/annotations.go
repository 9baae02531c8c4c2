package podspec

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateAnnotations checks the annotations with a meaning for pods, also in templates: the deletion cost, and the
// annotation of a mirror pod.
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

// isCost reports whether a text is a number in its only valid spelling: without a plus sign and leading zeros.
func isCost(text string) bool {
	if _, err := strconv.ParseInt(text, 10, 32); err != nil || strings.HasPrefix(text, "+") {
		return false
	}
	return text == "0" || !strings.HasPrefix(text, "0")
}

// ValidateAnnotationsUpdate checks that the annotations that the node uses to run the pod have not changed.
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
