package quota

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubectl/pkg/util/qos"
	"k8s.io/utils/ptr"
)

// podInScope reports whether a scope selects a pod.
func podInScope(scope corev1.ScopedResourceSelectorRequirement, pod *corev1.Pod) (bool, error) {
	switch scope.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return isTerminating(pod), nil
	case corev1.ResourceQuotaScopeNotTerminating:
		return !isTerminating(pod), nil
	case corev1.ResourceQuotaScopeBestEffort:
		return isBestEffort(pod), nil
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !isBestEffort(pod), nil
	case corev1.ResourceQuotaScopePriorityClass:
		return selects(scope, pod.Spec.PriorityClassName)
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return hasCrossNamespaceAffinity(pod.Spec.Affinity), nil
	case corev1.ResourceQuotaScopeVolumeAttributesClass:
	}
	return false, nil
}

// claimInScope reports whether a scope selects a volume claim. While its class is changed, it is in the
// scopes of all classes that it names.
func claimInScope(scope corev1.ScopedResourceSelectorRequirement, claim *corev1.PersistentVolumeClaim) (bool, error) {
	if scope.ScopeName != corev1.ResourceQuotaScopeVolumeAttributesClass {
		return false, nil
	}
	return selects(scope, attributesClasses(claim)...)
}

// noScope is the rule for resources that no scope selects.
func noScope[P any](corev1.ScopedResourceSelectorRequirement, P) (bool, error) { return false, nil }

// selects reports whether a scope selects an object by one of the names of its class; empty names do
// not count.
func selects(scope corev1.ScopedResourceSelectorRequirement, names ...string) (bool, error) {
	names = slices.DeleteFunc(names, func(name string) bool { return name == "" })
	isListed := func(name string) bool { return slices.Contains(scope.Values, name) }
	isOther := func(name string) bool { return !isListed(name) }
	switch scope.Operator {
	case corev1.ScopeSelectorOpExists:
		return len(names) > 0, nil
	case corev1.ScopeSelectorOpDoesNotExist:
		return len(names) == 0, nil
	case corev1.ScopeSelectorOpIn:
		return slices.ContainsFunc(names, isListed), nil
	case corev1.ScopeSelectorOpNotIn:
		return len(names) == 0 || slices.ContainsFunc(names, isOther), nil
	}
	return false, fmt.Errorf("%q is not a valid scope selector operator", scope.Operator)
}

// isTerminating reports whether a pod has a deadline, which the scope calls terminating.
func isTerminating(pod *corev1.Pod) bool {
	return pod.Spec.ActiveDeadlineSeconds != nil && *pod.Spec.ActiveDeadlineSeconds >= 0
}

func isBestEffort(pod *corev1.Pod) bool { return qos.GetPodQOS(pod) == corev1.PodQOSBestEffort }

// hasCrossNamespaceAffinity reports whether a pod's placement depends on pods of other namespaces.
func hasCrossNamespaceAffinity(affinity *corev1.Affinity) bool {
	if affinity == nil {
		return false
	}
	var terms []corev1.PodAffinityTerm
	var weighted []corev1.WeightedPodAffinityTerm
	if to := affinity.PodAffinity; to != nil {
		terms = append(terms, to.RequiredDuringSchedulingIgnoredDuringExecution...)
		weighted = append(weighted, to.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
	if from := affinity.PodAntiAffinity; from != nil {
		terms = append(terms, from.RequiredDuringSchedulingIgnoredDuringExecution...)
		weighted = append(weighted, from.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
	for _, term := range weighted {
		terms = append(terms, term.PodAffinityTerm)
	}
	return slices.ContainsFunc(terms, func(term corev1.PodAffinityTerm) bool {
		return len(term.Namespaces) > 0 || term.NamespaceSelector != nil
	})
}

// attributesClasses returns the names of a claim's previous, current and desired volume attributes
// classes.
func attributesClasses(claim *corev1.PersistentVolumeClaim) []string {
	names := []string{ptr.Deref(claim.Spec.VolumeAttributesClassName, ""), ptr.Deref(claim.Status.CurrentVolumeAttributesClassName, "")}
	if modifying := claim.Status.ModifyVolumeStatus; modifying != nil {
		names = append(names, modifying.TargetVolumeAttributesClassName)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
