package resource

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// validateDevice checks a device of a slice. With ownNodes, each device names its nodes, not the slice.
func validateDevice(d, old *resourcev1.Device, ownNodes bool, at *field.Path) field.ErrorList {
	errs := validateLabel(d.Name, at.Child("name"))
	if n, limit := len(d.Attributes)+len(d.Capacity), resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice; n > limit {
		errs = append(errs, field.Invalid(at, n, fmt.Sprintf("the total number of attributes and capacities must not exceed %d", limit)))
	}
	for _, name := range sortedKeys(d.Attributes) {
		attribute, path := d.Attributes[name], at.Child("attributes")
		errs = append(errs, validateName(string(name), path)...)
		errs = append(errs, validateAttribute(&attribute, path, string(name))...)
	}
	for _, name := range sortedKeys(d.Capacity) {
		capacity, path := d.Capacity[name], at.Child("capacity")
		errs = append(errs, validateName(string(name), path)...)
		if was, ok := old.Capacity[name]; ok && equality.Semantic.DeepEqual(capacity, was) {
			continue
		}
		errs = append(errs, validateCapacity(&capacity, ptr.Deref(d.AllowMultipleAllocations, false), path.Key(shortened(string(name))))...)
	}
	if !sameTaints(d, old) {
		errs = append(errs, validateList(d.Taints, resourcev1.DeviceTaintsMaxLength, at.Child("taints"), validateTaint)...)
	}
	errs = append(errs, validateMap(d.ConsumesCounters, resourcev1.ResourceSliceMaxDeviceCounterConsumptionsPerDevice, at.Child("consumesCounters"),
		func(c resourcev1.DeviceCounterConsumption) string { return c.CounterSet }, validateConsumption)...)
	return slices.Concat(errs, validateDeviceNodes(d, ownNodes, at), validateBinding(d.BindingConditions, d.BindingFailureConditions, at))
}

func validateDeviceNodes(d *resourcev1.Device, own bool, at *field.Path) field.ErrorList {
	nodes := whichNodes{name: d.NodeName, selector: d.NodeSelector, all: d.AllNodes}
	switch {
	case own:
		const choice = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
		return append(nodes.validate(at, "must not be empty"), nodes.validateOne(at, choice, choice)...)
	case d.NodeName != nil || d.NodeSelector != nil || d.AllNodes != nil:
		return field.ErrorList{field.Invalid(at, nil,
			"`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec")}
	}
	return nil
}

// semanticVersion matches a version of semver.org, 2.0.0.
var semanticVersion = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)` +
	`(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?` +
	`(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?$`)

// validateAttribute checks an attribute in the map at all.
func validateAttribute(a *resourcev1.DeviceAttribute, all *field.Path, name string) field.ErrorList {
	at := all.Key(shortened(name))
	errs := validateOneValue(a, all, name)
	short := func(text *string, name string) {
		if text != nil {
			errs = append(errs, validate.MaxBytes(*text, at.Child(name), resourcev1.DeviceAttributeMaxValueLength)...)
		}
	}
	short(a.StringValue, "string")
	if a.VersionValue != nil && !semanticVersion.MatchString(*a.VersionValue) {
		errs = append(errs, field.Invalid(at.Child("version"), *a.VersionValue, "must be a string compatible with semver.org spec 2.0.0"))
	}
	short(a.VersionValue, "version")
	return errs
}

// validateOneValue checks that an attribute has one value. If its name is too long for the path of an error, the cause
// is reported a second time, at the shortened name.
func validateOneValue(a *resourcev1.DeviceAttribute, all *field.Path, name string) field.ErrorList {
	const values = "`int`, `bool`, `string`, `version`, `ints`, `bools`, `strings`, `versions`"
	var errs field.ErrorList
	var value any = ""
	switch set := validate.SetMembers(a); len(set) {
	case 1:
		return nil
	case 0:
		errs = append(errs, field.Invalid(all.Key(name), "", "must specify one of: "+values))
	default:
		value = *a
		errs = append(errs, field.Invalid(all.Key(name), "{"+strings.Join(set, ", ")+"}", "must specify exactly one of: "+values))
	}
	if short := shortened(name); short != name {
		errs = append(errs, field.Invalid(all.Key(short), value, "exactly one value must be specified"))
	}
	return errs
}

func validateTaint(t *resourcev1.DeviceTaint, at *field.Path) field.ErrorList {
	return slices.Concat(
		metav1validation.ValidateLabelName(t.Key, at.Child("key")),
		validate.FromMessages(t.Value, at.Child("value"), validation.IsValidLabelValue(t.Value)),
		validate.OneOf(t.Effect, at.Child("effect"), effects()...))
}

func validateCounterSet(s *resourcev1.CounterSet, at *field.Path) field.ErrorList {
	return append(
		requiredLabel(s.Name, at.Child("name")),
		validateCounters(s.Counters, resourcev1.ResourceSliceMaxCountersPerCounterSet, at.Child("counters"))...)
}

func validateConsumption(c *resourcev1.DeviceCounterConsumption, at *field.Path) field.ErrorList {
	return append(
		requiredLabel(c.CounterSet, at.Child("counterSet")),
		validateCounters(c.Counters, resourcev1.ResourceSliceMaxCountersPerDeviceCounterConsumption, at.Child("counters"))...)
}

func requiredLabel(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return validate.Required(name, at)
	}
	return validate.FromMessages(name, at, content.IsDNS1123Label(name))
}

// validateCounters checks the names of counters. Their values may have any size.
func validateCounters(counters map[string]resourcev1.Counter, limit int, at *field.Path) field.ErrorList {
	switch {
	case len(counters) == 0:
		return field.ErrorList{field.Required(at, "")}
	case len(counters) > limit:
		return field.ErrorList{field.TooMany(at, len(counters), limit)}
	}
	var errs field.ErrorList
	for _, name := range sortedKeys(counters) {
		errs = append(errs, validate.FromMessages(name, at, content.IsDNS1123Label(name))...)
	}
	return errs
}
