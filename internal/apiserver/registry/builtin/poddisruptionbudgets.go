package builtin

import (
	"slices"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// policyGroup returns the API group policy/v1: PodDisruptionBudgets.
func policyGroup() registry.Group {
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
		ValidateName: path.ValidatePathSegmentName,
		AnyFinalizer: true,
	}, []table.Column{
		table.Text("Min Available", "Minimum of pods that must stay available.", func(b *policyv1.PodDisruptionBudget) string { return disruptionText(b.Spec.MinAvailable) }),
		table.Text("Max Unavailable", "Maximum of pods that may be unavailable.", func(b *policyv1.PodDisruptionBudget) string { return disruptionText(b.Spec.MaxUnavailable) }),
		table.Number("Allowed Disruptions", "Pods that may be evicted now.", func(b *policyv1.PodDisruptionBudget) int { return int(b.Status.DisruptionsAllowed) }),
		table.Age(),
	}, registry.Strategy[*policyv1.PodDisruptionBudget]{
		Validate:             validatePodDisruptionBudget,
		Desired:              func(b *policyv1.PodDisruptionBudget) any { return b.Spec },
		CopyStatus:           registry.CopyField(func(b *policyv1.PodDisruptionBudget) *policyv1.PodDisruptionBudgetStatus { return &b.Status }),
		ValidateStatusUpdate: func(b, _ *policyv1.PodDisruptionBudget) field.ErrorList { return validateDisruptionStatus(&b.Status) },
	})
}

func disruptionText(count *intstr.IntOrString) string {
	if count == nil {
		return "N/A"
	}
	return count.String()
}

func validatePodDisruptionBudget(b *policyv1.PodDisruptionBudget) field.ErrorList {
	spec := field.NewPath("spec")
	var errs field.ErrorList
	if b.Spec.MinAvailable != nil && b.Spec.MaxUnavailable != nil {
		errs = append(errs, field.Invalid(spec, b.Spec, "minAvailable and maxUnavailable cannot be both set"))
	}
	return slices.Concat(errs,
		validateDisruptionShare(b.Spec.MinAvailable, spec.Child("minAvailable")),
		validateDisruptionShare(b.Spec.MaxUnavailable, spec.Child("maxUnavailable")),
		validate.OptionalLabelSelector(b.Spec.Selector, spec.Child("selector")),
		validate.OneOfPtr(b.Spec.UnhealthyPodEvictionPolicy, spec.Child("unhealthyPodEvictionPolicy"), policyv1.AlwaysAllow, policyv1.IfHealthyBudget))
}

// validateDisruptionShare checks a number or a percentage of the pods.
func validateDisruptionShare(share *intstr.IntOrString, path *field.Path) field.ErrorList {
	errs := validate.IntOrPercent(share, path)
	if share == nil || share.Type != intstr.String || len(errs) > 0 {
		return errs
	}
	if percent, err := intstr.GetScaledValueFromIntOrPercent(share, 100, false); err == nil && percent > 100 {
		errs = append(errs, field.Invalid(path, share, "must not be greater than 100%"))
	}
	return errs
}

func validateDisruptionStatus(s *policyv1.PodDisruptionBudgetStatus) field.ErrorList {
	status := field.NewPath("status")
	return append(
		metav1validation.ValidateConditions(s.Conditions, status.Child("conditions")),
		validate.Counts(status, map[string]int32{
			"disruptionsAllowed": s.DisruptionsAllowed, "currentHealthy": s.CurrentHealthy,
			"desiredHealthy": s.DesiredHealthy, "expectedPods": s.ExpectedPods,
		})...)
}
