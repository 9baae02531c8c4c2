package resource

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/podspec"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// resourceSlices list the devices of a pool, or a part of them.
func resourceSlices() registry.Resource {
	return registry.Define[resourcev1.ResourceSlice, resourcev1.ResourceSliceList](registry.Resource{
		GroupVersion:        resourcev1.SchemeGroupVersion,
		Kind:                "ResourceSlice",
		Plural:              "resourceslices",
		ValidateName:        apivalidation.NameIsDNSSubdomain,
		UnconditionalUpdate: true,
		ReturnDeletedObject: true,
	}, []table.Column{
		table.Text("Node", "Node that has the devices.", func(s *resourcev1.ResourceSlice) string { return ptr.Deref(s.Spec.NodeName, "") }),
		table.Text("Driver", "Driver of the devices.", func(s *resourcev1.ResourceSlice) string { return s.Spec.Driver }),
		table.Text("Pool", "Pool that the devices belong to.", func(s *resourcev1.ResourceSlice) string { return s.Spec.Pool.Name }),
		table.Age(),
	}, registry.Strategy[*resourcev1.ResourceSlice]{
		Warn:             warnOfSlice,
		Desired:          func(s *resourcev1.ResourceSlice) any { return s.Spec },
		PrepareForCreate: prepareSlice,
		PrepareForUpdate: func(s, old *resourcev1.ResourceSlice) {
			// As in Kubernetes, a field that is dropped counts as a change.
			if !equality.Semantic.DeepEqual(s.Spec, old.Spec) {
				s.Generation = old.Generation + 1
			}
			prepareSlice(s)
		},
		ValidateIn: func(_ schema.GroupVersion, s, old *resourcev1.ResourceSlice) field.ErrorList {
			if old == nil {
				return validateSlice(&s.Spec, &resourcev1.ResourceSliceSpec{})
			}
			return validateSlice(&s.Spec, &old.Spec)
		},
		ValidateUpdate: func(s, old *resourcev1.ResourceSlice) field.ErrorList {
			spec := field.NewPath("spec")
			return slices.Concat(
				validate.Immutable(s.Spec.Pool.Name, old.Spec.Pool.Name, spec.Child("pool", "name")),
				validate.Immutable(s.Spec.Driver, old.Spec.Driver, spec.Child("driver")),
				validate.Immutable(s.Spec.NodeName, old.Spec.NodeName, spec.Child("nodeName")))
		},
		SelectableFields: func(s *resourcev1.ResourceSlice) fields.Set {
			return fields.Set{
				resourcev1.ResourceSliceSelectorNodeName: ptr.Deref(s.Spec.NodeName, ""),
				resourcev1.ResourceSliceSelectorDriver:   s.Spec.Driver,
			}
		},
		IndexedFields: []string{resourcev1.ResourceSliceSelectorNodeName},
	})
}

// prepareSlice sets the times of new taints of devices, and drops the fields of feature gates that Kubernetes disables by
// default.
func prepareSlice(s *resourcev1.ResourceSlice) {
	// The arrays may be shared with the object that was sent.
	spec := s.Spec.DeepCopy()
	spec.PartitionTypeAttribute, spec.SkipNodeOperations = nil, nil
	for i := range spec.Devices {
		device := &spec.Devices[i]
		for name, a := range device.Attributes {
			a.IntValues, a.BoolValues, a.StringValues, a.VersionValues = nil, nil, nil, nil
			device.Attributes[name] = a
		}
		for j := range device.Taints {
			if device.Taints[j].TimeAdded == nil {
				device.Taints[j].TimeAdded = new(metav1.Now().Rfc3339Copy())
			}
		}
		for j := range device.ConsumesCounters {
			device.ConsumesCounters[j].CompatibilityGroups = nil
		}
		device.NodeAllocatableResources = nil
	}
	s.Spec = *spec
}

func validateSlice(s, old *resourcev1.ResourceSliceSpec) field.ErrorList {
	spec, pool := field.NewPath("spec"), field.NewPath("spec", "pool")
	errs := append(podspec.ValidateDriverName(s.Driver, spec.Child("driver")), validatePool(s.Pool.Name, pool.Child("name"))...)
	if s.Pool.ResourceSliceCount <= 0 {
		errs = append(errs, field.Invalid(pool.Child("resourceSliceCount"), s.Pool.ResourceSliceCount, "must be greater than zero"))
	}
	if s.Pool.Generation < 0 {
		errs = append(errs, field.Invalid(pool.Child("generation"), s.Pool.Generation, "must be greater than or equal to zero"))
	}
	nodes := whichNodes{s.NodeName, s.NodeSelector, s.AllNodes, s.PerDeviceNodeSelection}
	errs = append(errs, nodes.validate(spec, "must be either unset or set to a non-empty string")...)
	const choice = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
	errs = append(errs, nodes.validateOne(spec, choice, choice+", but multiple fields are set")...)
	if s.NodeSelector != nil && len(s.NodeSelector.NodeSelectorTerms) != 1 {
		errs = append(errs, field.Invalid(spec.Child("nodeSelector", "nodeSelectorTerms"), s.NodeSelector.NodeSelectorTerms, "must have exactly one node selector term"))
	}
	if s.SharedCounters != nil && s.Devices != nil {
		errs = append(errs, field.Invalid(spec, "", "only one of `sharedCounters` or `devices` is allowed"))
	}
	limit := resourcev1.ResourceSliceMaxDevices
	if slices.ContainsFunc(s.Devices, func(d resourcev1.Device) bool { return len(d.Taints) > 0 || len(d.ConsumesCounters) > 0 }) {
		limit = resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures
	}
	errs = append(errs, validateSet(s.Devices, limit, spec.Child("devices"), func(d resourcev1.Device) string { return d.Name },
		func(d *resourcev1.Device, at *field.Path) field.ErrorList {
			return validateDevice(d, deviceNamed(old, d.Name), ptr.Deref(s.PerDeviceNodeSelection, false), at)
		})...)
	return append(errs, validateMap(s.SharedCounters, resourcev1.ResourceSliceMaxCounterSets, spec.Child("sharedCounters"),
		func(c resourcev1.CounterSet) string { return c.Name }, validateCounterSet)...)
}

// deviceNamed returns the device with this name, or an empty one.
func deviceNamed(s *resourcev1.ResourceSliceSpec, name string) *resourcev1.Device {
	for i := range s.Devices {
		if s.Devices[i].Name == name {
			return &s.Devices[i]
		}
	}
	return &resourcev1.Device{}
}

// whichNodes are the fields that select the nodes with access to devices.
type whichNodes struct {
	name     *string
	selector *corev1.NodeSelector
	all      *bool
	each     *bool
}

// validate checks each field that is set. emptyName is the message about an empty node name.
func (n whichNodes) validate(at *field.Path, emptyName string) field.ErrorList {
	var errs field.ErrorList
	if n.name != nil && *n.name == "" {
		errs = append(errs, field.Invalid(at.Child("nodeName"), "", emptyName))
	} else if n.name != nil {
		errs = append(errs, validate.FromMessages(*n.name, at.Child("nodeName"), apivalidation.NameIsDNSSubdomain(*n.name, false))...)
	}
	if n.selector != nil {
		errs = append(errs, podspec.ValidateNodeSelector(n.selector, at.Child("nodeSelector"))...)
	}
	if n.all != nil && !*n.all {
		errs = append(errs, field.Invalid(at.Child("allNodes"), false, "must be either unset or set to true"))
	}
	if n.each != nil && !*n.each {
		errs = append(errs, field.Invalid(at.Child("perDeviceNodeSelection"), false, "must be either unset or set to true"))
	}
	return errs
}

// validateOne checks that exactly one field is set. none and many are the messages if it is not.
func (n whichNodes) validateOne(at *field.Path, none, many string) field.ErrorList {
	var ways []string
	for _, way := range []struct {
		name string
		set  bool
	}{
		{"`nodeName`", ptr.Deref(n.name, "") != ""},
		{"`nodeSelector`", n.selector != nil},
		{"`allNodes`", ptr.Deref(n.all, false)},
		{"`perDeviceNodeSelection`", ptr.Deref(n.each, false)},
	} {
		if way.set {
			ways = append(ways, way.name)
		}
	}
	switch len(ways) {
	case 0:
		return field.ErrorList{field.Required(at, none)}
	case 1:
		return nil
	}
	return field.ErrorList{field.Invalid(at, "{"+strings.Join(ways, ", ")+"}", many)}
}

// sortedKeys returns the sorted keys of a map, so that errors have a fixed order.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// sameTaints reports whether the taints of a device have not changed.
func sameTaints(d, old *resourcev1.Device) bool {
	return equality.Semantic.DeepEqual(d.Taints, old.Taints)
}

// warnOfSlice warns about a driver whose name is not in lower case.
func warnOfSlice(s, _ *resourcev1.ResourceSlice) []string {
	if s.Spec.Driver == strings.ToLower(s.Spec.Driver) {
		return nil
	}
	return []string{fmt.Sprintf("spec.driver: driver names should be lowercase; %q contains uppercase characters", s.Spec.Driver)}
}
