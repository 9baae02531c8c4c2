package podspec

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// MergeLabelKeys adds requirements for matchLabelKeys and mismatchLabelKeys to the label selectors of affinity terms
// and topology spread constraints, with the values of the pod's labels. The affinity and the constraints may be shared
// with the object that was sent, so they are copied.
func MergeLabelKeys(spec *corev1.PodSpec, labels map[string]string) {
	merge := func(t *corev1.PodAffinityTerm) {
		mergeKeys(t.LabelSelector, t.MatchLabelKeys, metav1.LabelSelectorOpIn, labels)
		mergeKeys(t.LabelSelector, t.MismatchLabelKeys, metav1.LabelSelectorOpNotIn, labels)
	}
	spec.Affinity = spec.Affinity.DeepCopy()
	for _, terms := range podTerms(spec.Affinity) {
		merge(terms)
	}
	spec.TopologySpreadConstraints = slices.Clone(spec.TopologySpreadConstraints)
	for i := range spec.TopologySpreadConstraints {
		c := &spec.TopologySpreadConstraints[i]
		c.LabelSelector = c.LabelSelector.DeepCopy()
		mergeKeys(c.LabelSelector, c.MatchLabelKeys, metav1.LabelSelectorOpIn, labels)
	}
}

// podTerms returns the pod affinity terms.
func podTerms(a *corev1.Affinity) []*corev1.PodAffinityTerm {
	var all []*corev1.PodAffinityTerm
	add := func(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
		for i := range required {
			all = append(all, &required[i])
		}
		for i := range preferred {
			all = append(all, &preferred[i].PodAffinityTerm)
		}
	}
	if a != nil && a.PodAffinity != nil {
		add(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if a != nil && a.PodAntiAffinity != nil {
		add(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	return all
}

// mergeKeys adds a requirement for each key that the labels have. A nil selector matches nothing,
// with or without keys.
func mergeKeys(s *metav1.LabelSelector, keys []string, operator metav1.LabelSelectorOperator, labels map[string]string) {
	for _, key := range keys {
		if value, ok := labels[key]; ok && s != nil {
			s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: []string{value}})
		}
	}
}

// validateLabelKeys checks matchLabelKeys and mismatchLabelKeys, which may have been merged into the selector: a key
// that occurs once in the selector may come from there.
func validateLabelKeys(match, mismatch []string, s *metav1.LabelSelector, at *field.Path) field.ErrorList {
	errs := append(validateKeyNames(match, s, at.Child("matchLabelKeys")), validateKeyNames(mismatch, s, at.Child("mismatchLabelKeys"))...)
	if s != nil {
		matched, seen := map[string]int{}, map[string]bool{}
		for i, key := range slices.Backward(match) {
			matched[key] = i // of several, the first
		}
		for key := range s.MatchLabels {
			seen[key] = true
		}
		for _, e := range s.MatchExpressions {
			if i, given := matched[e.Key]; given && seen[e.Key] {
				errs = append(errs, field.Invalid(at.Index(i), e.Key, "exists in both matchLabelKeys and labelSelector"))
			}
			seen[e.Key] = true
		}
	}
	mismatched := sets.New(mismatch...)
	for i, key := range match {
		if mismatched.Has(key) {
			errs = append(errs, field.Invalid(at.Child("matchLabelKeys").Index(i), key, "exists in both matchLabelKeys and mismatchLabelKeys"))
		}
	}
	return errs
}

func validateKeyNames(keys []string, s *metav1.LabelSelector, at *field.Path) field.ErrorList {
	if len(keys) > 0 && s == nil {
		return field.ErrorList{field.Forbidden(at, "must not be specified when labelSelector is not set")}
	}
	return validate.Each(keys, at, func(key *string, at *field.Path) field.ErrorList { return metav1validation.ValidateLabelName(*key, at) })
}
