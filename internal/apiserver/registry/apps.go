package registry

import (
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func appsKinds() []Kind {
	return []Kind{deployments(), replicaSets(), statefulSets(), daemonSets(), controllerRevisions()}
}

func deployments() Kind {
	return define[appsv1.Deployment, appsv1.DeploymentList](Kind{
		GroupVersion:        appsv1.SchemeGroupVersion,
		Kind:                "Deployment",
		Resource:            "deployments",
		Why:                 "The top of the cascade that everyone knows: Deployment, ReplicaSet, Pod.",
		Namespaced:          true,
		ShortNames:          []string{"deploy"},
		Categories:          []string{"all"},
		Name:                apivalidation.NameIsDNSSubdomain,
		UnconditionalUpdate: true,
	}, slices.Concat([]column{
		text("Ready", "Pods that are ready, of those that there are to be.", func(d *appsv1.Deployment) string {
			return fraction(d.Status.ReadyReplicas, deref(d.Spec.Replicas, 0))
		}),
		number("Up-to-date", "Pods made from the present template.", func(d *appsv1.Deployment) int { return int(d.Status.UpdatedReplicas) }),
		number("Available", "Pods that have been ready for long enough.", func(d *appsv1.Deployment) int { return int(d.Status.AvailableReplicas) }),
		ageColumn(),
	}, templateColumns(
		func(d *appsv1.Deployment) *corev1.PodTemplateSpec { return &d.Spec.Template },
		func(d *appsv1.Deployment) string { return selectorText(d.Spec.Selector) },
	)), behaviour[*appsv1.Deployment]{
		defaults: defaultDeployment,
		validate: validateDeployment,
		validateUpdate: func(d, old *appsv1.Deployment) field.ErrorList {
			return immutable(d.Spec.Selector, old.Spec.Selector, field.NewPath("spec", "selector"))
		},
		// Annotations too: the controller copies them to the ReplicaSets.
		desired: func(d *appsv1.Deployment) any { return []any{d.Spec, d.Annotations} },
		status:  part(func(d *appsv1.Deployment) *appsv1.DeploymentStatus { return &d.Status }),
		validateStatus: func(d, _ *appsv1.Deployment) field.ErrorList {
			s := d.Status
			return counts(field.NewPath("status"), map[string]int32{
				"replicas": s.Replicas, "updatedReplicas": s.UpdatedReplicas, "readyReplicas": s.ReadyReplicas,
				"availableReplicas": s.AvailableReplicas, "unavailableReplicas": s.UnavailableReplicas,
			})
		},
		scale: &scaling[*appsv1.Deployment]{
			replicas: func(d *appsv1.Deployment) **int32 { return &d.Spec.Replicas },
			current:  func(d *appsv1.Deployment) int32 { return d.Status.Replicas },
			selector: func(d *appsv1.Deployment) string { return scaleSelector(d.Spec.Selector) },
		},
	})
}

func defaultDeployment(d *appsv1.Deployment) {
	defaultPodSpec(&d.Spec.Template.Spec)
	setDefaultPtr(&d.Spec.Replicas, 1)
	setDefaultPtr(&d.Spec.RevisionHistoryLimit, 10)
	setDefaultPtr(&d.Spec.ProgressDeadlineSeconds, 600)
	setDefault(&d.Spec.Strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if d.Spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		setDefaultPtr(&d.Spec.Strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
		setDefaultPtr(&d.Spec.Strategy.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
		setDefaultPtr(&d.Spec.Strategy.RollingUpdate.MaxSurge, intstr.FromString("25%"))
	}
}

func validateDeployment(d *appsv1.Deployment) field.ErrorList {
	spec := field.NewPath("spec")
	errs := slices.Concat(
		notNegative(d.Spec.Replicas, spec.Child("replicas")),
		notNegative(&d.Spec.MinReadySeconds, spec.Child("minReadySeconds")),
		notNegative(d.Spec.RevisionHistoryLimit, spec.Child("revisionHistoryLimit")),
		notNegative(d.Spec.ProgressDeadlineSeconds, spec.Child("progressDeadlineSeconds")),
		matchingSelector("deployment", d.Spec.Selector, d.Spec.Template.Labels, spec),
		validateTemplate("ReplicaSet", &d.Spec.Template, spec.Child("template")),
		validateDeploymentStrategy(&d.Spec.Strategy, spec.Child("strategy")),
	)
	if deadline := d.Spec.ProgressDeadlineSeconds; deadline != nil && *deadline <= d.Spec.MinReadySeconds {
		errs = append(errs, field.Invalid(spec.Child("progressDeadlineSeconds"), *deadline, "must be greater than minReadySeconds"))
	}
	return errs
}

func validateDeploymentStrategy(s *appsv1.DeploymentStrategy, path *field.Path) field.ErrorList {
	errs := oneOf(s.Type, path.Child("type"), appsv1.RecreateDeploymentStrategyType, appsv1.RollingUpdateDeploymentStrategyType)
	rolling := path.Child("rollingUpdate")
	switch {
	case s.Type == appsv1.RecreateDeploymentStrategyType && s.RollingUpdate != nil:
		return append(errs, field.Forbidden(rolling, "may not be specified when strategy `type` is 'Recreate'"))
	case s.Type == appsv1.RollingUpdateDeploymentStrategyType && s.RollingUpdate == nil:
		return append(errs, field.Required(rolling, "this should be defaulted and never be nil"))
	case s.RollingUpdate == nil:
		return errs
	}
	return append(errs, validateRollingRoom(s.RollingUpdate.MaxUnavailable, s.RollingUpdate.MaxSurge, rolling)...)
}

// validateRollingRoom checks that a rollout can move at all: it needs pods that may
// be missing, or pods that may be too many.
func validateRollingRoom(unavailable, surge *intstr.IntOrString, path *field.Path) field.ErrorList {
	errs := append(countOrPercent(unavailable, path.Child("maxUnavailable")), countOrPercent(surge, path.Child("maxSurge"))...)
	if isZero(unavailable) && isZero(surge) {
		errs = append(errs, field.Invalid(path.Child("maxUnavailable"), unavailable, "may not be 0 when `maxSurge` is 0"))
	}
	if share, err := intstr.GetScaledValueFromIntOrPercent(unavailable, 100, true); err == nil && unavailable.Type == intstr.String && share > 100 {
		errs = append(errs, field.Invalid(path.Child("maxUnavailable"), unavailable, "must not be greater than 100%"))
	}
	return errs
}

// isZero tells whether a count is 0 or 0%, or not there.
func isZero(count *intstr.IntOrString) bool {
	n, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(count, intstr.FromInt32(0)), 100, true)
	return err == nil && n == 0
}

func replicaSets() Kind {
	return define[appsv1.ReplicaSet, appsv1.ReplicaSetList](Kind{
		GroupVersion:        appsv1.SchemeGroupVersion,
		Kind:                "ReplicaSet",
		Resource:            "replicasets",
		Why:                 "The middle of that cascade: owned and owner at once.",
		Namespaced:          true,
		ShortNames:          []string{"rs"},
		Categories:          []string{"all"},
		Name:                apivalidation.NameIsDNSSubdomain,
		UnconditionalUpdate: true,
	}, slices.Concat([]column{
		number("Desired", "Pods that there are to be.", func(rs *appsv1.ReplicaSet) int { return int(deref(rs.Spec.Replicas, 0)) }),
		number("Current", "Pods that there are.", func(rs *appsv1.ReplicaSet) int { return int(rs.Status.Replicas) }),
		number("Ready", "Pods that are ready.", func(rs *appsv1.ReplicaSet) int { return int(rs.Status.ReadyReplicas) }),
		ageColumn(),
	}, templateColumns(
		func(rs *appsv1.ReplicaSet) *corev1.PodTemplateSpec { return &rs.Spec.Template },
		func(rs *appsv1.ReplicaSet) string { return selectorText(rs.Spec.Selector) },
	)), behaviour[*appsv1.ReplicaSet]{
		defaults: func(rs *appsv1.ReplicaSet) {
			defaultPodSpec(&rs.Spec.Template.Spec)
			setDefaultPtr(&rs.Spec.Replicas, 1)
		},
		validate: validateReplicaSet,
		validateUpdate: func(rs, old *appsv1.ReplicaSet) field.ErrorList {
			return immutable(rs.Spec.Selector, old.Spec.Selector, field.NewPath("spec", "selector"))
		},
		desired: func(rs *appsv1.ReplicaSet) any { return rs.Spec },
		status:  part(func(rs *appsv1.ReplicaSet) *appsv1.ReplicaSetStatus { return &rs.Status }),
		validateStatus: func(rs, _ *appsv1.ReplicaSet) field.ErrorList {
			s := rs.Status
			return counts(field.NewPath("status"), map[string]int32{
				"replicas": s.Replicas, "fullyLabeledReplicas": s.FullyLabeledReplicas,
				"readyReplicas": s.ReadyReplicas, "availableReplicas": s.AvailableReplicas,
			})
		},
		selectable: func(rs *appsv1.ReplicaSet) fields.Set {
			return fields.Set{"status.replicas": strconv.Itoa(int(rs.Status.Replicas))}
		},
		scale: &scaling[*appsv1.ReplicaSet]{
			replicas: func(rs *appsv1.ReplicaSet) **int32 { return &rs.Spec.Replicas },
			current:  func(rs *appsv1.ReplicaSet) int32 { return rs.Status.Replicas },
			selector: func(rs *appsv1.ReplicaSet) string { return scaleSelector(rs.Spec.Selector) },
		},
	})
}

func validateReplicaSet(rs *appsv1.ReplicaSet) field.ErrorList {
	spec := field.NewPath("spec")
	return slices.Concat(
		notNegative(rs.Spec.Replicas, spec.Child("replicas")),
		notNegative(&rs.Spec.MinReadySeconds, spec.Child("minReadySeconds")),
		matchingSelector("replicaset", rs.Spec.Selector, rs.Spec.Template.Labels, spec),
		validateTemplate("ReplicaSet", &rs.Spec.Template, spec.Child("template")),
	)
}
