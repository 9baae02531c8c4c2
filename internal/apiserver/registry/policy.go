package registry

import (
	policyv1 "k8s.io/api/policy/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func policyKinds() []Kind { return []Kind{podDisruptionBudgets()} }

func podDisruptionBudgets() Kind {
	return define[policyv1.PodDisruptionBudget, policyv1.PodDisruptionBudgetList](Kind{
		GroupVersion: policyv1.SchemeGroupVersion,
		Kind:         "PodDisruptionBudget",
		Resource:     "poddisruptionbudgets",
		Why:          "Owned by operators' objects beside the workloads that it protects; deletion, unlike eviction, does not ask it.",
		Namespaced:   true,
		ShortNames:   []string{"pdb"},
		Name:         apivalidation.NameIsDNSSubdomain,
	}, []column{
		text("Min Available", "Pods that have to be left.", func(b *policyv1.PodDisruptionBudget) string { return countText(b.Spec.MinAvailable) }),
		text("Max Unavailable", "Pods that may be missing.", func(b *policyv1.PodDisruptionBudget) string { return countText(b.Spec.MaxUnavailable) }),
		number("Allowed Disruptions", "Pods that may be evicted now.", func(b *policyv1.PodDisruptionBudget) int { return int(b.Status.DisruptionsAllowed) }),
		ageColumn(),
	}, behaviour[*policyv1.PodDisruptionBudget]{
		validate: validatePodDisruptionBudget,
		desired:  func(b *policyv1.PodDisruptionBudget) any { return b.Spec },
		status:   part(func(b *policyv1.PodDisruptionBudget) *policyv1.PodDisruptionBudgetStatus { return &b.Status }),
		validateStatus: func(b, _ *policyv1.PodDisruptionBudget) field.ErrorList {
			s := b.Status
			return counts(field.NewPath("status"), map[string]int32{
				"disruptionsAllowed": s.DisruptionsAllowed, "currentHealthy": s.CurrentHealthy,
				"desiredHealthy": s.DesiredHealthy, "expectedPods": s.ExpectedPods,
			})
		},
	})
}

func countText(count *intstr.IntOrString) string {
	if count == nil {
		return "N/A"
	}
	return count.String()
}

func validatePodDisruptionBudget(b *policyv1.PodDisruptionBudget) field.ErrorList {
	spec := field.NewPath("spec")
	errs := append(
		countOrPercent(b.Spec.MinAvailable, spec.Child("minAvailable")),
		countOrPercent(b.Spec.MaxUnavailable, spec.Child("maxUnavailable"))...)
	if b.Spec.MinAvailable != nil && b.Spec.MaxUnavailable != nil {
		errs = append(errs, field.Invalid(spec, b.Spec, "minAvailable and maxUnavailable cannot be both set"))
	}
	if b.Spec.Selector != nil {
		errs = append(errs, validLabelSelector(b.Spec.Selector, spec.Child("selector"))...)
	}
	return append(errs, oneOfPtr(b.Spec.UnhealthyPodEvictionPolicy, spec.Child("unhealthyPodEvictionPolicy"),
		policyv1.IfHealthyBudget, policyv1.AlwaysAllow)...)
}
