package autoscaling

import (
	"slices"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/podspec"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// validateMetric checks a metric. If it has several sources, the first one counts.
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

// validateReference checks a reference to an object, but not its version.
func validateReference(ref autoscalingv2.CrossVersionObjectReference, at *field.Path) field.ErrorList {
	return append(requiredSegment(ref.Kind, at.Child("kind")), requiredSegment(ref.Name, at.Child("name"))...)
}

// validateVersions checks the versions of the objects that an autoscaler refers to. The server need not serve them.
// Versions that were stored before this check existed may stay.
func validateVersions(a, old *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	spec := field.NewPath("spec")
	var errs field.ErrorList
	ref := a.Spec.ScaleTargetRef
	if old == nil || ref.APIVersion != old.Spec.ScaleTargetRef.APIVersion || ref.Kind != old.Spec.ScaleTargetRef.Kind {
		core := ref.Kind == "ReplicationController" // the only kind there that can be scaled
		errs = validateVersion(ref.APIVersion, core, spec.Child("scaleTargetRef", "apiVersion"))
	}
	if old != nil && slices.ContainsFunc(old.Spec.Metrics, func(m autoscalingv2.MetricSpec) bool {
		return m.Object != nil && len(validateVersion(m.Object.DescribedObject.APIVersion, true, spec)) > 0
	}) {
		return errs
	}
	return append(errs, validate.Each(a.Spec.Metrics, spec.Child("metrics"), func(m *autoscalingv2.MetricSpec, at *field.Path) field.ErrorList {
		if m.Object == nil {
			return nil
		}
		return validateVersion(m.Object.DescribedObject.APIVersion, true, at.Child("object", "describedObject", "apiVersion"))
	})...)
}

// validateVersion checks the form of a group version; core says whether it can be one of the core group.
func validateVersion(version string, core bool, at *field.Path) field.ErrorList {
	switch parsed, err := schema.ParseGroupVersion(version); {
	case err != nil:
		return field.ErrorList{field.Invalid(at, version, err.Error())}
	case parsed.Group == "" && !core:
		return field.ErrorList{field.Invalid(at, version, "apiVersion must specify API group")}
	}
	return nil
}

// validateUse checks the target of a resource: its usage, as a quantity or in percent of the request.
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
