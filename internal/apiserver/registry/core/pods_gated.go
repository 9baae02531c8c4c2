package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// undoPlacement undoes changes of a gated pod's node selector and node affinity. The scheduler has not placed the pod
// yet, so both may become narrower until the update that removes the last gate, inclusive. Other changes are undone,
// too, and reported.
func undoPlacement(spec, old *corev1.PodSpec, path *field.Path) field.ErrorList {
	if len(old.SchedulingGates) == 0 {
		return nil
	}
	errs := validateNarrowerSelector(spec.NodeSelector, old.NodeSelector, path.Child("nodeSelector"))
	spec.NodeSelector = old.NodeSelector

	is, was := nodeAffinityOf(spec.Affinity), nodeAffinityOf(old.Affinity)
	if equality.Semantic.DeepEqual(is, was) {
		return errs
	}
	errs = append(errs, validateNarrowerAffinity(is, was, path.Child("affinity", "nodeAffinity"))...)
	switch onlyNodes := spec.Affinity != nil && spec.Affinity.PodAffinity == nil && spec.Affinity.PodAntiAffinity == nil; {
	case old.Affinity == nil && onlyNodes:
		spec.Affinity = nil
	case spec.Affinity == nil:
		spec.Affinity = &corev1.Affinity{NodeAffinity: was}
	default:
		spec.Affinity.NodeAffinity = was
	}
	return errs
}

func nodeAffinityOf(affinity *corev1.Affinity) *corev1.NodeAffinity {
	if affinity == nil {
		return nil
	}
	return affinity.NodeAffinity
}

// validateNarrowerSelector checks that the selector still requires all labels of the old one.
func validateNarrowerSelector(selector, old map[string]string, at *field.Path) field.ErrorList {
	for label, was := range old {
		if is, ok := selector[label]; !ok || is != was {
			return field.ErrorList{field.Invalid(at, selector, "only additions to spec.nodeSelector are allowed (no mutations or deletions)")}
		}
	}
	return nil
}

// validateNarrowerAffinity checks that the required terms, if any, have only gained requirements. Preferred terms may
// change in any way.
func validateNarrowerAffinity(affinity, old *corev1.NodeAffinity, path *field.Path) field.ErrorList {
	at := path.Child("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
	terms, were := requiredTerms(affinity), requiredTerms(old)
	if len(were) == 0 {
		return nil
	}
	if len(terms) != len(were) {
		return field.ErrorList{field.Invalid(at, terms, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")}
	}
	var errs field.ErrorList
	for i := range were {
		if !isNarrower(&terms[i], &were[i]) {
			errs = append(errs, field.Invalid(at.Index(i), terms[i], "only additions are allowed (no mutations or deletions)"))
		}
	}
	return errs
}

func requiredTerms(affinity *corev1.NodeAffinity) []corev1.NodeSelectorTerm {
	if affinity == nil || affinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return affinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}

// isNarrower reports whether a term begins with the requirements of the old one. An empty term
// matches no node, so any requirement would widen it.
func isNarrower(term, old *corev1.NodeSelectorTerm) bool {
	if len(old.MatchExpressions) == 0 && len(old.MatchFields) == 0 {
		return len(term.MatchExpressions) == 0 && len(term.MatchFields) == 0
	}
	return hasPrefix(term.MatchExpressions, old.MatchExpressions) && hasPrefix(term.MatchFields, old.MatchFields)
}

func hasPrefix(list, prefix []corev1.NodeSelectorRequirement) bool {
	return len(list) >= len(prefix) && equality.Semantic.DeepEqual(list[:len(prefix)], prefix)
}
