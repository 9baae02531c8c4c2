// Package policy is the API group policy: PodDisruptionBudgets.
package policy

import (
	policyv1 "k8s.io/api/policy/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// Group returns the API group policy/v1.
func Group() registry.Group {
	return registry.Group{
		GroupVersion: policyv1.SchemeGroupVersion,
		AddToScheme:  policyv1.AddToScheme,
		Resources:    []registry.Resource{podDisruptionBudgets()},
	}
}

func podDisruptionBudgets() registry.Resource {
	return registry.Define[policyv1.PodDisruptionBudget, policyv1.PodDisruptionBudgetList](registry.Resource{
		GroupVersion: policyv1.SchemeGroupVersion,
		Kind:         "PodDisruptionBudget",
		Plural:       "poddisruptionbudgets",
		Namespaced:   true,
		ShortNames:   []string{"pdb"},
		ValidateName: apivalidation.NameIsDNSSubdomain,
	}, []table.Column{
		table.Text("Min Available", "Pods that have to be left.", func(b *policyv1.PodDisruptionBudget) string { return countText(b.Spec.MinAvailable) }),
		table.Text("Max Unavailable", "Pods that may be missing.", func(b *policyv1.PodDisruptionBudget) string { return countText(b.Spec.MaxUnavailable) }),
		table.Number("Allowed Disruptions", "Pods that may be evicted now.", func(b *policyv1.PodDisruptionBudget) int { return int(b.Status.DisruptionsAllowed) }),
		table.Age(),
	}, registry.Strategy[*policyv1.PodDisruptionBudget]{
		Validate:   validatePodDisruptionBudget,
		Desired:    func(b *policyv1.PodDisruptionBudget) any { return b.Spec },
		CopyStatus: registry.CopyField(func(b *policyv1.PodDisruptionBudget) *policyv1.PodDisruptionBudgetStatus { return &b.Status }),
		ValidateStatusUpdate: func(b, _ *policyv1.PodDisruptionBudget) field.ErrorList {
			s := b.Status
			return validate.Counts(field.NewPath("status"), map[string]int32{
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
		validate.IntOrPercent(b.Spec.MinAvailable, spec.Child("minAvailable")),
		validate.IntOrPercent(b.Spec.MaxUnavailable, spec.Child("maxUnavailable"))...)
	if b.Spec.MinAvailable != nil && b.Spec.MaxUnavailable != nil {
		errs = append(errs, field.Invalid(spec, b.Spec, "minAvailable and maxUnavailable cannot be both set"))
	}
	if b.Spec.Selector != nil {
		errs = append(errs, validate.LabelSelector(b.Spec.Selector, spec.Child("selector"))...)
	}
	return append(errs, validate.OneOfPtr(b.Spec.UnhealthyPodEvictionPolicy, spec.Child("unhealthyPodEvictionPolicy"),
		policyv1.IfHealthyBudget, policyv1.AlwaysAllow)...)
}
