package apps

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/podspec"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

func deployments() registry.Resource {
	return registry.Define[appsv1.Deployment, appsv1.DeploymentList](registry.Resource{
		GroupVersion:        appsv1.SchemeGroupVersion,
		Legacy:              legacyDeployments(),
		Kind:                "Deployment",
		Plural:              "deployments",
		Namespaced:          true,
		ShortNames:          []string{"deploy"},
		Categories:          []string{"all"},
		ValidateName:        apivalidation.NameIsDNSSubdomain,
		UnconditionalUpdate: true,
	}, slices.Concat([]table.Column{
		table.Text("Ready", "Ready pods, of the desired ones.", func(d *appsv1.Deployment) string {
			return table.Fraction(d.Status.ReadyReplicas, ptr.Deref(d.Spec.Replicas, 0))
		}),
		table.Number("Up-to-date", "Pods made from the current template.", func(d *appsv1.Deployment) int { return int(d.Status.UpdatedReplicas) }),
		table.Number("Available", "Pods that have been ready for at least minReadySeconds.", func(d *appsv1.Deployment) int { return int(d.Status.AvailableReplicas) }),
		table.Age(),
	}, podspec.TemplateColumns(
		func(d *appsv1.Deployment) *corev1.PodTemplateSpec { return &d.Spec.Template },
		func(d *appsv1.Deployment) string { return table.Selector(d.Spec.Selector) },
	)), registry.Strategy[*appsv1.Deployment]{
		Default:  defaultDeployment,
		Validate: validateDeployment,
		ValidateUpdate: func(d, old *appsv1.Deployment) field.ErrorList {
			return validate.Immutable(d.Spec.Selector, old.Spec.Selector, field.NewPath("spec", "selector"))
		},
		Warn: func(d, old *appsv1.Deployment) []string { return warnOfPods(d, old, &d.Spec.Template) },
		// This includes annotations: the deployment controller copies them to the ReplicaSets.
		Desired:    func(d *appsv1.Deployment) any { return []any{d.Spec, d.Annotations} },
		CopyStatus: registry.CopyField(func(d *appsv1.Deployment) *appsv1.DeploymentStatus { return &d.Status }),
		ValidateStatusUpdate: func(d, old *appsv1.Deployment) field.ErrorList {
			s, path := d.Status, field.NewPath("status")
			return slices.Concat(validateObserved(s.ObservedGeneration, s.CollisionCount, old.Status.CollisionCount, path),
				validate.Counts(path, map[string]int32{
					"replicas": s.Replicas, "updatedReplicas": s.UpdatedReplicas, "readyReplicas": s.ReadyReplicas,
					"availableReplicas": s.AvailableReplicas, "unavailableReplicas": s.UnavailableReplicas,
				}),
				validate.NotNegative(s.TerminatingReplicas, path.Child("terminatingReplicas")),
				validate.NoMoreThan(s.Replicas, allReplicas, path, map[string]int32{
					"updatedReplicas": s.UpdatedReplicas, "readyReplicas": s.ReadyReplicas, "availableReplicas": s.AvailableReplicas,
				}),
				validate.NoMoreThan(s.ReadyReplicas, "readyReplicas", path, map[string]int32{"availableReplicas": s.AvailableReplicas}))
		},
		Scale: &registry.Scaling[*appsv1.Deployment]{
			Replicas:       func(d *appsv1.Deployment) **int32 { return &d.Spec.Replicas },
			StatusReplicas: func(d *appsv1.Deployment) int32 { return d.Status.Replicas },
			Selector:       func(d *appsv1.Deployment) string { return registry.ScaleSelector(d.Spec.Selector) },
		},
	})
}

func defaultDeployment(d *appsv1.Deployment) {
	podspec.DefaultSpec(&d.Spec.Template.Spec)
	registry.SetDefaultPtr(&d.Spec.Replicas, 1)
	registry.SetDefaultPtr(&d.Spec.RevisionHistoryLimit, 10)
	registry.SetDefaultPtr(&d.Spec.ProgressDeadlineSeconds, 600)
	registry.SetDefault(&d.Spec.Strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if d.Spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		registry.SetDefaultPtr(&d.Spec.Strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
		registry.SetDefaultPtr(&d.Spec.Strategy.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
		registry.SetDefaultPtr(&d.Spec.Strategy.RollingUpdate.MaxSurge, intstr.FromString("25%"))
	}
}

func validateDeployment(d *appsv1.Deployment) field.ErrorList {
	spec := field.NewPath("spec")
	errs := slices.Concat(
		validate.NotNegative(d.Spec.Replicas, spec.Child("replicas")),
		validate.NotNegative(&d.Spec.MinReadySeconds, spec.Child("minReadySeconds")),
		validate.NotNegative(d.Spec.RevisionHistoryLimit, spec.Child("revisionHistoryLimit")),
		validate.NotNegative(d.Spec.ProgressDeadlineSeconds, spec.Child("progressDeadlineSeconds")),
		validate.MatchingSelector(deploymentSelector(), d.Spec.Selector, d.Spec.Template.Labels, spec),
		validateSelectedTemplate("ReplicaSet", &d.Spec.Template, d.Spec.Selector, spec.Child("template")),
		validateDeploymentStrategy(&d.Spec.Strategy, spec.Child("strategy")),
	)
	if deadline := d.Spec.ProgressDeadlineSeconds; deadline != nil && *deadline <= d.Spec.MinReadySeconds {
		errs = append(errs, field.Invalid(spec.Child("progressDeadlineSeconds"), *deadline, "must be greater than minReadySeconds"))
	}
	return errs
}

func validateDeploymentStrategy(s *appsv1.DeploymentStrategy, path *field.Path) field.ErrorList {
	rolling := path.Child("rollingUpdate")
	switch {
	case s.Type == appsv1.RecreateDeploymentStrategyType && s.RollingUpdate != nil:
		return field.ErrorList{field.Forbidden(rolling, "may not be specified when strategy `type` is 'Recreate'")}
	case s.Type == appsv1.RecreateDeploymentStrategyType:
		return nil
	case s.Type != appsv1.RollingUpdateDeploymentStrategyType:
		return field.ErrorList{field.NotSupported(path, *s,
			[]appsv1.DeploymentStrategyType{appsv1.RecreateDeploymentStrategyType, appsv1.RollingUpdateDeploymentStrategyType})}
	case s.RollingUpdate == nil:
		return field.ErrorList{field.Required(rolling, "this should be defaulted and never be nil")}
	}
	return validateRollingUpdate(s.RollingUpdate.MaxUnavailable, s.RollingUpdate.MaxSurge, rolling)
}

// validateRollingUpdate checks that a rollout can make progress: it needs pods that
// may be unavailable, or pods above the desired number.
func validateRollingUpdate(unavailable, surge *intstr.IntOrString, path *field.Path) field.ErrorList {
	errs := append(validate.IntOrPercent(unavailable, path.Child("maxUnavailable")), validate.IntOrPercent(surge, path.Child("maxSurge"))...)
	if isZero(unavailable) && isZero(surge) {
		errs = append(errs, field.Invalid(path.Child("maxUnavailable"), unavailable, "may not be 0 when `maxSurge` is 0"))
	}
	return append(errs, validateShare(unavailable, path.Child("maxUnavailable"))...)
}

// validateShare checks that a percentage is at most 100%.
func validateShare(count *intstr.IntOrString, path *field.Path) field.ErrorList {
	if share, err := intstr.GetScaledValueFromIntOrPercent(count, 100, true); err == nil && count.Type == intstr.String && share > 100 {
		return field.ErrorList{field.Invalid(path, count, "must not be greater than 100%")}
	}
	return nil
}

// deploymentSelector has the rules for the selectors of Deployments and ReplicaSets. Upstream's messages for both name
// the deployment.
func deploymentSelector() validate.SelectorRules {
	return validate.SelectorRules{Empty: "empty selector is invalid for deployment", Invalid: new("invalid label selector")}
}

// isZero reports whether a count is 0, 0%, absent or not a number.
func isZero(count *intstr.IntOrString) bool {
	n, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(count, intstr.FromInt32(0)), 100, true)
	return err == nil && n == 0 || err != nil && count.IntValue() == 0
}
