// Package autoscaling is the API group autoscaling: HorizontalPodAutoscalers, in v2 and in the
// older form v1. The kind Scale of /scale is in package registry.
package autoscaling

import (
	"fmt"
	"slices"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// Group returns the API group autoscaling/v2.
func Group() registry.Group {
	return registry.Group{
		GroupVersion: autoscalingv2.SchemeGroupVersion,
		AddToScheme:  autoscalingv2.AddToScheme,
		Resources:    []registry.Resource{horizontalPodAutoscalers()},
	}
}

func horizontalPodAutoscalers() registry.Resource {
	return registry.Define[autoscalingv2.HorizontalPodAutoscaler, autoscalingv2.HorizontalPodAutoscalerList](registry.Resource{
		GroupVersion:        autoscalingv2.SchemeGroupVersion,
		Kind:                "HorizontalPodAutoscaler",
		Plural:              "horizontalpodautoscalers",
		Namespaced:          true,
		ShortNames:          []string{"hpa"},
		Categories:          []string{"all"},
		ValidateName:        apivalidation.NameIsDNSSubdomain,
		UnconditionalUpdate: true,
		Peers:               []registry.PeerVersion{v1()},
	}, []table.Column{
		table.Text("Reference", "What it scales.", func(a *autoscalingv2.HorizontalPodAutoscaler) string {
			return a.Spec.ScaleTargetRef.Kind + "/" + a.Spec.ScaleTargetRef.Name
		}),
		table.Text("Targets", "Measured and desired values of the metrics.", targetsText),
		table.Number("MinPods", "Minimum number of pods.", func(a *autoscalingv2.HorizontalPodAutoscaler) int { return int(ptr.Deref(a.Spec.MinReplicas, 1)) }),
		table.Number("MaxPods", "Maximum number of pods.", func(a *autoscalingv2.HorizontalPodAutoscaler) int { return int(a.Spec.MaxReplicas) }),
		table.Number("Replicas", "Pods that exist.", func(a *autoscalingv2.HorizontalPodAutoscaler) int { return int(a.Status.CurrentReplicas) }),
		table.Age(),
	}, registry.Strategy[*autoscalingv2.HorizontalPodAutoscaler]{
		Default:  defaultAutoscaler,
		Validate: validateAutoscaler,
		ValidateIn: func(_ schema.GroupVersion, a, old *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
			return validateVersions(a, old)
		},
		Desired: func(a *autoscalingv2.HorizontalPodAutoscaler) any { return a.Spec },
		CopyStatus: registry.CopyField(func(a *autoscalingv2.HorizontalPodAutoscaler) *autoscalingv2.HorizontalPodAutoscalerStatus {
			return &a.Status
		}),
		ValidateStatusUpdate: validateStatus,
	})
}

func validateStatus(a, _ *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	status := field.NewPath("status")
	return append(
		validate.Counts(status, map[string]int32{"currentReplicas": a.Status.CurrentReplicas, "desiredReplicas": a.Status.DesiredReplicas}),
		validate.Each(a.Status.Conditions, status.Child("conditions"), func(c *autoscalingv2.HorizontalPodAutoscalerCondition, at *field.Path) field.ErrorList {
			return validate.NotNegative(c.ObservedGeneration, at.Child("observedGeneration"))
		})...)
}

// targetsText shows the measured values of the first metrics, and how many more there are.
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
	return table.OrNone(strings.Join(words, ", "))
}

// currentResource returns the latest measured value of a resource.
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

// targetOf returns the target of the metric that is set.
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

// usualUtilization is the default target, in percent of the requested CPU.
const usualUtilization = 80

func defaultAutoscaler(a *autoscalingv2.HorizontalPodAutoscaler) {
	defaultScale(a)
	defaultBehavior(a.Spec.Behavior)
}

// defaultScale sets the defaults of the fields that v1 has, too.
func defaultScale(a *autoscalingv2.HorizontalPodAutoscaler) {
	registry.SetDefaultPtr(&a.Spec.MinReplicas, 1)
	if len(a.Spec.Metrics) == 0 {
		a.Spec.Metrics = []autoscalingv2.MetricSpec{{
			Type: autoscalingv2.ResourceMetricSourceType,
			Resource: &autoscalingv2.ResourceMetricSource{Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{
				Type: autoscalingv2.UtilizationMetricType, AverageUtilization: new(int32(usualUtilization)),
			}},
		}}
	}
}

func defaultBehavior(b *autoscalingv2.HorizontalPodAutoscalerBehavior) {
	if b == nil {
		return
	}
	all := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15}
	few := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: 15}
	registry.SetDefaultPtr(&b.ScaleUp, autoscalingv2.HPAScalingRules{})
	registry.SetDefaultPtr(&b.ScaleDown, autoscalingv2.HPAScalingRules{})
	registry.SetDefaultPtr(&b.ScaleUp.StabilizationWindowSeconds, 0)
	defaultRules(b.ScaleUp, few, all)
	defaultRules(b.ScaleDown, all)
}

func defaultRules(r *autoscalingv2.HPAScalingRules, policies ...autoscalingv2.HPAScalingPolicy) {
	registry.SetDefaultPtr(&r.SelectPolicy, autoscalingv2.MaxChangePolicySelect)
	if r.Policies == nil {
		r.Policies = policies
	}
}

func validateAutoscaler(a *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	spec := field.NewPath("spec")
	ref := spec.Child("scaleTargetRef")
	errs := slices.Concat(
		validateReference(a.Spec.ScaleTargetRef, ref),
		validate.Each(a.Spec.Metrics, spec.Child("metrics"), validateMetric),
	)
	least := ptr.Deref(a.Spec.MinReplicas, 1)
	if least < 0 {
		errs = append(errs, field.Invalid(spec.Child("minReplicas"), least, "must be greater than or equal to 0"))
	}
	switch most := a.Spec.MaxReplicas; {
	case most == 0:
		errs = append(errs, field.Required(spec.Child("maxReplicas"), ""))
	case most < 0:
		errs = append(errs, field.Invalid(spec.Child("maxReplicas"), most, "must be greater than or equal to 1"))
	}
	if a.Spec.MaxReplicas < least {
		errs = append(errs, field.Invalid(spec.Child("maxReplicas"), a.Spec.MaxReplicas, "must be greater than or equal to `minReplicas`"))
	}
	if least == 0 && !slices.ContainsFunc(a.Spec.Metrics, isMeasuredElsewhere) {
		errs = append(errs, field.Forbidden(spec.Child("metrics"), "must specify at least one Object or External metric to support scaling to zero replicas"))
	}
	if b := a.Spec.Behavior; b != nil {
		errs = append(errs, validateScalingRules(b.ScaleUp, spec.Child("behavior", "scaleUp"))...)
		errs = append(errs, validateScalingRules(b.ScaleDown, spec.Child("behavior", "scaleDown"))...)
	}
	return errs
}

// isMeasuredElsewhere reports whether a metric exists without pods.
func isMeasuredElsewhere(m autoscalingv2.MetricSpec) bool {
	return m.Type == autoscalingv2.ObjectMetricSourceType || m.Type == autoscalingv2.ExternalMetricSourceType
}

// requiredSegment checks a name that is part of a URL.
func requiredSegment(value string, at *field.Path) field.ErrorList {
	if value == "" {
		return validate.Required(value, at)
	}
	return validate.FromMessages(value, at, content.IsPathSegmentName(value))
}

// Bounds of scaling policies, in seconds.
const (
	maxStabilization = 3600
	maxPolicyPeriod  = 1800
)

func validateScalingRules(r *autoscalingv2.HPAScalingRules, at *field.Path) field.ErrorList {
	if r == nil {
		return nil
	}
	errs := validate.OneOfPtr(r.SelectPolicy, at.Child("selectPolicy"),
		autoscalingv2.DisabledPolicySelect, autoscalingv2.MaxChangePolicySelect, autoscalingv2.MinChangePolicySelect)
	switch seconds := ptr.Deref(r.StabilizationWindowSeconds, 0); {
	case seconds < 0:
		errs = append(errs, field.Invalid(at.Child("stabilizationWindowSeconds"), seconds, "must be greater than or equal to zero"))
	case seconds > maxStabilization:
		errs = append(errs, field.Invalid(at.Child("stabilizationWindowSeconds"), seconds, fmt.Sprintf("must be less than or equal to %d", maxStabilization)))
	}
	if len(r.Policies) == 0 {
		errs = append(errs, field.Required(at.Child("policies"), "must specify at least one Policy"))
	}
	if r.Tolerance != nil && r.Tolerance.Sign() < 0 {
		errs = append(errs, field.Invalid(at.Child("tolerance"), r.Tolerance.String(), "must be greater than or equal to 0"))
	}
	return append(errs, validate.Each(r.Policies, at.Child("policies"), func(p *autoscalingv2.HPAScalingPolicy, at *field.Path) field.ErrorList {
		errs := validate.Positive(&p.Value, at.Child("value"))
		if types := []autoscalingv2.HPAScalingPolicyType{autoscalingv2.PercentScalingPolicy, autoscalingv2.PodsScalingPolicy}; !slices.Contains(types, p.Type) {
			errs = append(errs, field.NotSupported(at.Child("type"), p.Type, types))
		}
		errs = append(errs, validate.Positive(&p.PeriodSeconds, at.Child("periodSeconds"))...)
		if p.PeriodSeconds > maxPolicyPeriod {
			errs = append(errs, field.Invalid(at.Child("periodSeconds"), p.PeriodSeconds, fmt.Sprintf("must be less than or equal to %d", maxPolicyPeriod)))
		}
		return errs
	})...)
}
