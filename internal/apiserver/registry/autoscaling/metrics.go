package autoscaling

import (
	"slices"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/podspec"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// validateMetric checks a metric. Of several sources, the first counts.
func validateMetric(m *autoscalingv2.MetricSpec, at *field.Path) field.ErrorList {
	types := []autoscalingv2.MetricSourceType{
		autoscalingv2.ContainerResourceMetricSourceType, autoscalingv2.ExternalMetricSourceType,
		autoscalingv2.ObjectMetricSourceType, autoscalingv2.PodsMetricSourceType, autoscalingv2.ResourceMetricSourceType,
	}
	var errs field.ErrorList
	if m.Type == "" {
		errs = append(errs, field.Required(at.Child("type"), "must specify a metric source type"))
	}
	if !slices.Contains(types, m.Type) {
		errs = append(errs, field.NotSupported(at.Child("type"), m.Type, types))
	}
	errs = append(errs, validateMetricSource(m, at)...)
	name := ""
	if slices.Contains(types, m.Type) {
		name = strings.ToLower(string(m.Type)[:1]) + string(m.Type)[1:]
	}
	set := validate.SetMembers(m)
	if name != "" && !slices.Contains(set, name) {
		errs = append(errs, field.Required(at.Child(name), "must populate information for the given metric source"))
	}
	if len(set) == 1 {
		return errs
	}
	for _, other := range set {
		if other != name {
			errs = append(errs, field.Forbidden(at.Child(other), "must populate the given metric source only"))
		}
	}
	return errs
}

// validateMetricSource checks the first source of a metric.
func validateMetricSource(m *autoscalingv2.MetricSpec, at *field.Path) field.ErrorList {
	switch {
	case m.Object != nil:
		at, target := at.Child("object"), at.Child("object", "target")
		errs := slices.Concat(
			validateReference(m.Object.DescribedObject, at.Child("describedObject")),
			requiredMetric(m.Object.Metric.Name, at.Child("metric", "name")), validateTarget(&m.Object.Target, target))
		if m.Object.Target.Value == nil && m.Object.Target.AverageValue == nil {
			errs = append(errs, field.Required(target.Child("averageValue"), "must set either a target value or averageValue"))
		}
		return errs
	case m.External != nil:
		at, target := at.Child("external"), at.Child("external", "target")
		errs := append(requiredMetric(m.External.Metric.Name, at.Child("metric", "name")), validateTarget(&m.External.Target, target)...)
		switch t := m.External.Target; {
		case t.Value == nil && t.AverageValue == nil:
			errs = append(errs, field.Required(target.Child("averageValue"), "must set either a target value for metric or a per-pod target"))
		case t.Value != nil && t.AverageValue != nil:
			errs = append(errs, field.Forbidden(target.Child("value"), "may not set both a target value for metric and a per-pod target"))
		}
		return errs
	case m.Pods != nil:
		at, target := at.Child("pods"), at.Child("pods", "target")
		errs := append(requiredMetric(m.Pods.Metric.Name, at.Child("metric", "name")), validateTarget(&m.Pods.Target, target)...)
		if m.Pods.Target.AverageValue == nil {
			errs = append(errs, field.Required(target.Child("averageValue"), "must specify a positive target averageValue"))
		}
		return errs
	case m.Resource != nil:
		at := at.Child("resource")
		var errs field.ErrorList
		if m.Resource.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), "must specify a resource name"))
		}
		return append(errs, validateUse(&m.Resource.Target, at.Child("target"))...)
	case m.ContainerResource != nil:
		return validateContainerMetric(m.ContainerResource, at.Child("containerResource"))
	}
	return nil
}

func validateContainerMetric(m *autoscalingv2.ContainerResourceMetricSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if m.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), "must specify a resource name"))
	} else {
		errs = append(errs, podspec.ValidateContainerResource(m.Name, at.Child("name"))...)
	}
	if m.Container == "" {
		errs = append(errs, field.Required(at.Child("container"), "must specify a container"))
	}
	errs = append(errs, validate.OptionalLabel(m.Container, at.Child("container"))...)
	return append(errs, validateUse(&m.Target, at.Child("target"))...)
}

// requiredMetric checks the name of a metric, which is part of a URL.
func requiredMetric(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, "must specify a metric name")}
	}
	return validate.FromMessages(name, at, content.IsPathSegmentName(name))
}

// validateReference checks a reference to an object in a version that need not be served.
func validateReference(ref autoscalingv2.CrossVersionObjectReference, at *field.Path) field.ErrorList {
	errs := append(requiredSegment(ref.Kind, at.Child("kind")), requiredSegment(ref.Name, at.Child("name"))...)
	switch version, err := schema.ParseGroupVersion(ref.APIVersion); {
	case err != nil:
		errs = append(errs, field.Invalid(at.Child("apiVersion"), ref.APIVersion, err.Error()))
	case version.Group != "":
		for _, complaint := range validation.IsDNS1123Subdomain(version.Group) {
			errs = append(errs, field.Invalid(at.Child("apiVersion"), ref.APIVersion, complaint))
		}
	}
	return errs
}

// validateUse checks the target of a resource: what is used, absolutely or as a share of what is
// requested.
func validateUse(t *autoscalingv2.MetricTarget, at *field.Path) field.ErrorList {
	errs := validateTarget(t, at)
	switch {
	case t.AverageUtilization == nil && t.AverageValue == nil:
		errs = append(errs, field.Required(at.Child("averageUtilization"), "must set either a target raw value or a target utilization"))
	case t.AverageUtilization != nil && t.AverageValue != nil:
		errs = append(errs, field.Forbidden(at.Child("averageValue"), "may not set both a target raw value and a target utilization"))
	}
	return errs
}

func validateTarget(t *autoscalingv2.MetricTarget, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if t.Type == "" {
		errs = append(errs, field.Required(at.Child("type"), "must specify a metric target type"))
	}
	known := []autoscalingv2.MetricTargetType{autoscalingv2.UtilizationMetricType, autoscalingv2.ValueMetricType, autoscalingv2.AverageValueMetricType}
	if !slices.Contains(known, t.Type) {
		errs = append(errs, field.Invalid(at.Child("type"), t.Type, "must be either Utilization, Value, or AverageValue"))
	}
	if t.Value != nil && t.Value.Sign() != 1 {
		errs = append(errs, field.Invalid(at.Child("value"), t.Value, "must be positive"))
	}
	if t.AverageValue != nil && t.AverageValue.Sign() != 1 {
		errs = append(errs, field.Invalid(at.Child("averageValue"), t.AverageValue, "must be positive"))
	}
	if t.AverageUtilization != nil && *t.AverageUtilization < 1 {
		errs = append(errs, field.Invalid(at.Child("averageUtilization"), *t.AverageUtilization, "must be greater than 0"))
	}
	return errs
}
