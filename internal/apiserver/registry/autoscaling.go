package registry

import (
	"fmt"
	"slices"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func autoscalingKinds() []Kind { return []Kind{horizontalPodAutoscalers()} }

// addScale adds what /scale speaks. The rest of autoscaling/v1 is an older form of v2.
func addScale(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(autoscalingv1.SchemeGroupVersion, &autoscalingv1.Scale{})
	metav1.AddToGroupVersion(scheme, autoscalingv1.SchemeGroupVersion)
	return nil
}

func horizontalPodAutoscalers() Kind {
	return define[autoscalingv2.HorizontalPodAutoscaler, autoscalingv2.HorizontalPodAutoscalerList](Kind{
		GroupVersion:        autoscalingv2.SchemeGroupVersion,
		Kind:                "HorizontalPodAutoscaler",
		Resource:            "horizontalpodautoscalers",
		Why:                 "Part of most charts that people install, beside the workload that it scales and owned by the same object.",
		Namespaced:          true,
		ShortNames:          []string{"hpa"},
		Categories:          []string{"all"},
		Name:                apivalidation.NameIsDNSSubdomain,
		UnconditionalUpdate: true,
	}, []column{
		text("Reference", "What it scales.", func(a *autoscalingv2.HorizontalPodAutoscaler) string {
			return a.Spec.ScaleTargetRef.Kind + "/" + a.Spec.ScaleTargetRef.Name
		}),
		text("Targets", "What is measured, and what it is to be.", targetsText),
		number("MinPods", "Fewest pods that there may be.", func(a *autoscalingv2.HorizontalPodAutoscaler) int { return int(deref(a.Spec.MinReplicas, 1)) }),
		number("MaxPods", "Most pods that there may be.", func(a *autoscalingv2.HorizontalPodAutoscaler) int { return int(a.Spec.MaxReplicas) }),
		number("Replicas", "Pods that there are.", func(a *autoscalingv2.HorizontalPodAutoscaler) int { return int(a.Status.CurrentReplicas) }),
		ageColumn(),
	}, behaviour[*autoscalingv2.HorizontalPodAutoscaler]{
		defaults: defaultAutoscaler,
		validate: validateAutoscaler,
		status: part(func(a *autoscalingv2.HorizontalPodAutoscaler) *autoscalingv2.HorizontalPodAutoscalerStatus {
			return &a.Status
		}),
		validateStatus: func(a, _ *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
			return counts(field.NewPath("status"), map[string]int32{
				"currentReplicas": a.Status.CurrentReplicas, "desiredReplicas": a.Status.DesiredReplicas,
			})
		},
	})
}

// targetsText shows what is measured of the first metrics, and how many more there are.
func targetsText(a *autoscalingv2.HorizontalPodAutoscaler) string {
	const shown = 2
	var words []string
	for i, m := range a.Spec.Metrics {
		if i == shown {
			words = append(words, fmt.Sprintf("%d more...", len(a.Spec.Metrics)-shown))
			break
		}
		name, target, current := string(m.Type), metricTarget(&m), "<unknown>"
		if m.Resource != nil {
			name = string(m.Resource.Name)
			current = currentResource(a.Status.CurrentMetrics, m.Resource)
		}
		words = append(words, fmt.Sprintf("%s: %s/%s", name, current, target))
	}
	return orNone(strings.Join(words, ", "))
}

// currentResource is what was measured of a resource last.
func currentResource(measured []autoscalingv2.MetricStatus, of *autoscalingv2.ResourceMetricSource) string {
	for _, m := range measured {
		if m.Resource == nil || m.Resource.Name != of.Name {
			continue
		}
		switch now := m.Resource.Current; {
		case of.Target.AverageUtilization != nil && now.AverageUtilization != nil:
			return fmt.Sprintf("%d%%", *now.AverageUtilization)
		case of.Target.AverageUtilization == nil && now.AverageValue != nil:
			return now.AverageValue.String()
		}
	}
	return "<unknown>"
}

// targetOf is the target of whichever metric is set.
func targetOf(m *autoscalingv2.MetricSpec) *autoscalingv2.MetricTarget {
	switch {
	case m.Resource != nil:
		return &m.Resource.Target
	case m.ContainerResource != nil:
		return &m.ContainerResource.Target
	case m.Pods != nil:
		return &m.Pods.Target
	case m.Object != nil:
		return &m.Object.Target
	case m.External != nil:
		return &m.External.Target
	}
	return &autoscalingv2.MetricTarget{}
}

func metricTarget(m *autoscalingv2.MetricSpec) string {
	switch target := targetOf(m); {
	case target.AverageUtilization != nil:
		return fmt.Sprintf("%d%%", *target.AverageUtilization)
	case target.AverageValue != nil:
		return target.AverageValue.String() + " (avg)"
	case target.Value != nil:
		return target.Value.String()
	}
	return "<auto>"
}

// usualUtilization is the share of the requested CPU that pods are to use where nothing else is said.
const usualUtilization = 80

func defaultAutoscaler(a *autoscalingv2.HorizontalPodAutoscaler) {
	setDefaultPtr(&a.Spec.MinReplicas, 1)
	if len(a.Spec.Metrics) == 0 {
		a.Spec.Metrics = []autoscalingv2.MetricSpec{{
			Type: autoscalingv2.ResourceMetricSourceType,
			Resource: &autoscalingv2.ResourceMetricSource{Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{
				Type: autoscalingv2.UtilizationMetricType, AverageUtilization: new(int32(usualUtilization)),
			}},
		}}
	}
	if a.Spec.Behavior == nil {
		return
	}
	all := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15}
	few := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: 15}
	setDefaultPtr(&a.Spec.Behavior.ScaleUp, autoscalingv2.HPAScalingRules{})
	setDefaultPtr(&a.Spec.Behavior.ScaleDown, autoscalingv2.HPAScalingRules{})
	setDefaultPtr(&a.Spec.Behavior.ScaleUp.StabilizationWindowSeconds, 0)
	defaultRules(a.Spec.Behavior.ScaleUp, few, all)
	defaultRules(a.Spec.Behavior.ScaleDown, all)
}

func defaultRules(r *autoscalingv2.HPAScalingRules, policies ...autoscalingv2.HPAScalingPolicy) {
	setDefaultPtr(&r.SelectPolicy, autoscalingv2.MaxChangePolicySelect)
	if len(r.Policies) == 0 {
		r.Policies = policies
	}
}

func validateAutoscaler(a *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	spec := field.NewPath("spec")
	ref := spec.Child("scaleTargetRef")
	errs := slices.Concat(
		requiredSegment(a.Spec.ScaleTargetRef.Kind, ref.Child("kind")),
		requiredSegment(a.Spec.ScaleTargetRef.Name, ref.Child("name")),
		each(a.Spec.Metrics, spec.Child("metrics"), validateMetric),
	)
	least := deref(a.Spec.MinReplicas, 1)
	if least < 1 {
		errs = append(errs, field.Invalid(spec.Child("minReplicas"), least, "must be greater than or equal to 1"))
	}
	if a.Spec.MaxReplicas < 1 {
		errs = append(errs, field.Invalid(spec.Child("maxReplicas"), a.Spec.MaxReplicas, "must be greater than 0"))
	}
	if a.Spec.MaxReplicas < least {
		errs = append(errs, field.Invalid(spec.Child("maxReplicas"), a.Spec.MaxReplicas, "must be greater than or equal to `minReplicas`"))
	}
	if b := a.Spec.Behavior; b != nil {
		errs = append(errs, validateScalingRules(b.ScaleUp, spec.Child("behavior", "scaleUp"))...)
		errs = append(errs, validateScalingRules(b.ScaleDown, spec.Child("behavior", "scaleDown"))...)
	}
	return errs
}

// requiredSegment checks a name that is part of a URL.
func requiredSegment(value string, at *field.Path) field.ErrorList {
	if value == "" {
		return required(value, at)
	}
	return wellFormed(value, at, content.IsPathSegmentName(value))
}

func validateMetric(m *autoscalingv2.MetricSpec, at *field.Path) field.ErrorList {
	if m.Type == "" {
		return field.ErrorList{field.Required(at.Child("type"), "must specify a metric source type")}
	}
	errs := oneOf(m.Type, at.Child("type"), autoscalingv2.ContainerResourceMetricSourceType, autoscalingv2.ExternalMetricSourceType,
		autoscalingv2.ObjectMetricSourceType, autoscalingv2.PodsMetricSourceType, autoscalingv2.ResourceMetricSourceType)
	name := strings.ToLower(string(m.Type)[:1]) + string(m.Type)[1:]
	set := setPointers(m)
	for _, other := range set {
		if other != name {
			errs = append(errs, field.Forbidden(at.Child(other), "must populate the given metric source only"))
		}
	}
	if len(errs) > 0 {
		return errs
	}
	if !slices.Contains(set, name) {
		return field.ErrorList{field.Required(at.Child(name), "must populate information for the given metric source")}
	}
	if m.Resource != nil && m.Resource.Name == "" {
		errs = append(errs, field.Required(at.Child(name, "name"), "must specify a resource name"))
	}
	return append(errs, validateTarget(targetOf(m), at.Child(name, "target"))...)
}

func validateTarget(t *autoscalingv2.MetricTarget, at *field.Path) field.ErrorList {
	if t.Type == "" {
		return field.ErrorList{field.Required(at.Child("type"), "must specify a metric target type")}
	}
	errs := oneOf(t.Type, at.Child("type"), autoscalingv2.AverageValueMetricType, autoscalingv2.UtilizationMetricType, autoscalingv2.ValueMetricType)
	if t.AverageUtilization != nil && *t.AverageUtilization < 1 {
		errs = append(errs, field.Invalid(at.Child("averageUtilization"), *t.AverageUtilization, "must be greater than 0"))
	}
	if t.Value != nil && t.Value.Sign() != 1 {
		errs = append(errs, field.Invalid(at.Child("value"), t.Value.String(), "must be positive"))
	}
	if t.AverageValue != nil && t.AverageValue.Sign() != 1 {
		errs = append(errs, field.Invalid(at.Child("averageValue"), t.AverageValue.String(), "must be positive"))
	}
	if t.AverageUtilization == nil && t.AverageValue == nil && t.Value == nil {
		errs = append(errs, field.Required(at, "must set either a target raw value or a target utilization"))
	}
	return errs
}

// Bounds of the rules of scaling, in seconds.
const (
	maxStabilization = 3600
	maxPolicyPeriod  = 1800
)

func validateScalingRules(r *autoscalingv2.HPAScalingRules, at *field.Path) field.ErrorList {
	if r == nil {
		return nil
	}
	errs := oneOfPtr(r.SelectPolicy, at.Child("selectPolicy"),
		autoscalingv2.DisabledPolicySelect, autoscalingv2.MaxChangePolicySelect, autoscalingv2.MinChangePolicySelect)
	if seconds := deref(r.StabilizationWindowSeconds, 0); seconds < 0 || seconds > maxStabilization {
		errs = append(errs, field.Invalid(at.Child("stabilizationWindowSeconds"), seconds, fmt.Sprintf("must be between 0 and %d", maxStabilization)))
	}
	if len(r.Policies) == 0 {
		errs = append(errs, field.Required(at.Child("policies"), "must specify at least one Policy"))
	}
	return append(errs, each(r.Policies, at.Child("policies"), func(p *autoscalingv2.HPAScalingPolicy, at *field.Path) field.ErrorList {
		errs := append(oneOf(p.Type, at.Child("type"), autoscalingv2.PercentScalingPolicy, autoscalingv2.PodsScalingPolicy),
			positive(&p.Value, at.Child("value"))...)
		if p.PeriodSeconds <= 0 || p.PeriodSeconds > maxPolicyPeriod {
			errs = append(errs, field.Invalid(at.Child("periodSeconds"), p.PeriodSeconds, fmt.Sprintf("must be between 1 and %d", maxPolicyPeriod)))
		}
		return errs
	})...)
}
