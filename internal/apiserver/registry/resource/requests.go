package resource

import (
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// validateClaim checks the requests of a claim, its constraints, and its configuration.
func validateClaim(c *resourcev1.DeviceClaim, at *field.Path) field.ErrorList {
	names := requestNamesOf(c)
	errs := validateMap(c.Requests, resourcev1.DeviceRequestsMaxSize, at.Child("requests"),
		func(r resourcev1.DeviceRequest) string { return r.Name }, validateRequest)
	errs = append(errs, validateList(c.Constraints, resourcev1.DeviceConstraintsMaxSize, at.Child("constraints"),
		func(c *resourcev1.DeviceConstraint, at *field.Path) field.ErrorList {
			return validateConstraint(c, at, names)
		})...)
	return append(errs, validateList(c.Config, resourcev1.DeviceConfigMaxSize, at.Child("config"),
		func(c *resourcev1.DeviceClaimConfiguration, at *field.Path) field.ErrorList {
			errs := names.validateReferences(c.Requests, at.Child("requests"))
			return append(errs, validateConfig(&c.DeviceConfiguration, at, false)...)
		})...)
}

// requestNames maps the names of a claim's requests to the names of their alternatives.
type requestNames map[string][]string

func requestNamesOf(c *resourcev1.DeviceClaim) requestNames {
	names := requestNames{}
	for _, request := range c.Requests {
		names[request.Name] = nil
		for _, alternative := range request.FirstAvailable {
			names[request.Name] = append(names[request.Name], alternative.Name)
		}
	}
	return names
}

// validateReferences checks a list of references to requests.
func (names requestNames) validateReferences(references []string, at *field.Path) field.ErrorList {
	return validateSet(references, resourcev1.DeviceRequestsMaxSize, at, func(name string) string { return name },
		func(name *string, at *field.Path) field.ErrorList { return names.validateReference(*name, at) })
}

// validateReference checks a reference to a request, REQUEST or REQUEST/ALTERNATIVE.
func (names requestNames) validateReference(reference string, at *field.Path) field.ErrorList {
	unknown := field.Invalid(at, reference, "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'")
	words := strings.Split(reference, "/")
	if len(words) > 2 {
		return field.ErrorList{unknown}
	}
	var errs field.ErrorList
	for _, word := range words {
		errs = append(errs, validateLabel(word, at)...)
	}
	alternatives, ok := names[words[0]]
	if !ok || (len(words) == 2 && !slices.Contains(alternatives, words[1])) {
		errs = append(errs, unknown)
	}
	return errs
}

func validateRequest(r *resourcev1.DeviceRequest, at *field.Path) field.ErrorList {
	errs := validateLabel(r.Name, at.Child("name"))
	switch {
	case r.Exactly == nil && len(r.FirstAvailable) == 0:
		return append(errs, field.Required(at, "exactly one of `exactly` or `firstAvailable` is required"))
	case r.Exactly != nil && len(r.FirstAvailable) > 0:
		mode := at.Child("exactly", "allocationMode")
		errs = append(errs, validate.OneOfPtr(&r.Exactly.AllocationMode, mode, resourcev1.DeviceAllocationModeAll, resourcev1.DeviceAllocationModeExactCount)...)
		errs = append(errs, field.Invalid(at, nil, "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set"))
		return append(errs, validateMap(r.FirstAvailable, resourcev1.FirstAvailableDeviceRequestMaxSize, at.Child("firstAvailable"),
			func(s resourcev1.DeviceSubRequest) string { return s.Name }, validateExtraAlternative)...)
	case r.Exactly == nil:
		return append(errs, validateMap(r.FirstAvailable, resourcev1.FirstAvailableDeviceRequestMaxSize, at.Child("firstAvailable"),
			func(s resourcev1.DeviceSubRequest) string { return s.Name }, validateAlternative)...)
	}
	exactly := at.Child("exactly")
	return slices.Concat(errs,
		validateClassName(r.Exactly.DeviceClassName, exactly.Child("deviceClassName")),
		validateSelectors(r.Exactly.Selectors, exactly.Child("selectors"), false),
		validateCount(r.Exactly.AllocationMode, r.Exactly.Count, exactly),
		validate.Each(r.Exactly.Tolerations, exactly.Child("tolerations"), validateToleration))
}

func validateAlternative(r *resourcev1.DeviceSubRequest, at *field.Path) field.ErrorList {
	return slices.Concat(
		validateLabel(r.Name, at.Child("name")),
		declared(r.DeviceClassName, at.Child("deviceClassName"), validate.LongName),
		validateSelectors(r.Selectors, at.Child("selectors"), false),
		validateCount(r.AllocationMode, r.Count, at),
		validate.Each(r.Tolerations, at.Child("tolerations"), validateToleration))
}

// validateExtraAlternative checks an alternative of a request that must have none: only its fields, each by itself.
func validateExtraAlternative(r *resourcev1.DeviceSubRequest, at *field.Path) field.ErrorList {
	return slices.Concat(
		declared(r.DeviceClassName, at.Child("deviceClassName"), validate.LongName),
		validate.OneOfPtr(&r.AllocationMode, at.Child("allocationMode"), resourcev1.DeviceAllocationModeAll, resourcev1.DeviceAllocationModeExactCount),
		validate.Each(r.Tolerations, at.Child("tolerations"), func(t *resourcev1.DeviceToleration, at *field.Path) field.ErrorList {
			alone := *t
			alone.Value = ""
			return validateToleration(&alone, at)
		}))
}

func validateClassName(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return validate.Required(name, at)
	}
	return validate.FromMessages(name, at, validation.IsDNS1123Subdomain(name))
}

func validateCount(mode resourcev1.DeviceAllocationMode, count int64, at *field.Path) field.ErrorList {
	const all, exact = resourcev1.DeviceAllocationModeAll, resourcev1.DeviceAllocationModeExactCount
	switch {
	case mode != all && mode != exact:
		return field.ErrorList{field.NotSupported(at.Child("allocationMode"), mode, []resourcev1.DeviceAllocationMode{all, exact})}
	case mode == all && count != 0:
		return field.ErrorList{field.Invalid(at.Child("count"), count, "must not be specified when allocationMode is 'All'")}
	case mode == exact && count <= 0:
		return field.ErrorList{field.Invalid(at.Child("count"), count, "must be greater than zero")}
	}
	return nil
}

func validateConstraint(c *resourcev1.DeviceConstraint, at *field.Path, names requestNames) field.ErrorList {
	errs := names.validateReferences(c.Requests, at.Child("requests"))
	if c.MatchAttribute != nil {
		errs = append(errs, validate.FullyQualifiedName(string(*c.MatchAttribute), at.Child("matchAttribute"))...)
	}
	if c.DistinctAttribute != nil {
		errs = append(errs, validate.FullyQualifiedName(string(*c.DistinctAttribute), at.Child("distinctAttribute"))...)
	}
	if c.MatchAttribute != nil || c.DistinctAttribute != nil {
		return errs
	}
	return append(errs, field.Required(at, `exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set`))
}

// effects returns the effects that a taint of a device can have.
func effects() []resourcev1.DeviceTaintEffect {
	return []resourcev1.DeviceTaintEffect{resourcev1.DeviceTaintEffectNoExecute, resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNone}
}

func validateToleration(t *resourcev1.DeviceToleration, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if t.Key != "" {
		errs = metav1validation.ValidateLabelName(t.Key, at.Child("key"))
	}
	errs = append(errs, validate.OneOf(t.Operator, at.Child("operator"), resourcev1.DeviceTolerationOpEqual, resourcev1.DeviceTolerationOpExists)...)
	switch value := at.Child("value"); {
	case t.Operator == resourcev1.DeviceTolerationOpExists && t.Value != "":
		errs = append(errs, field.Invalid(value, t.Value, "must be empty for operator `Exists`"))
	case t.Operator == resourcev1.DeviceTolerationOpEqual:
		errs = append(errs, validate.FromMessages(t.Value, value, validation.IsValidLabelValue(t.Value))...)
	}
	if t.Effect != "" {
		errs = append(errs, validate.OneOf(t.Effect, at.Child("effect"), effects()...)...)
	}
	return errs
}
