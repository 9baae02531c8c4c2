package resource

import (
	"encoding/json"
	"fmt"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/podspec"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// validateList checks the elements of a list that is not too long.
func validateList[T any](list []T, limit int, at *field.Path, check func(*T, *field.Path) field.ErrorList) field.ErrorList {
	if errs := validate.MaxItems(list, at, limit); len(errs) > 0 {
		return errs
	}
	return validate.Each(list, at, check)
}

// validateSet checks a list in which no key occurs twice.
func validateSet[T any, K comparable](list []T, limit int, at *field.Path, key func(T) K, check func(*T, *field.Path) field.ErrorList) field.ErrorList {
	errs := validateList(list, limit, at, check)
	if len(list) > limit {
		return errs
	}
	seen := map[K]bool{}
	for i, thing := range list {
		k := key(thing)
		if seen[k] {
			errs = append(errs, field.Duplicate(at.Index(i), k))
		}
		seen[k] = true
	}
	return errs
}

// validateMap checks a list in which no key occurs twice, like validateSet, but errors show the element.
func validateMap[T any, K comparable](list []T, limit int, at *field.Path, key func(T) K, check func(*T, *field.Path) field.ErrorList) field.ErrorList {
	errs := validateSet(list, limit, at, key, check)
	duplicates := map[string]*field.Error{}
	for _, err := range errs {
		if err.Type == field.ErrorTypeDuplicate {
			duplicates[err.Field] = err
		}
	}
	if len(duplicates) == 0 {
		return errs
	}
	for i := range list {
		if err := duplicates[at.Index(i).String()]; err != nil {
			err.BadValue = list[i]
		}
	}
	return errs
}

// validateDriver checks the name of a driver in a claim or in a configuration.
func validateDriver(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return validate.Required(name, at)
	}
	errs := validate.LongNameCaseless(name, at)
	errs = append(errs, validate.MaxCharacters(name, at, resourcev1.DriverNameMaxLength)...)
	return errs
}

// validateLabel checks a name that must be a DNS label, and so not empty.
func validateLabel(name string, at *field.Path) field.ErrorList {
	return validate.FromMessages(name, at, validation.IsDNS1123Label(name))
}

// validatePool checks the name of a pool of devices: subdomains, separated by slashes.
func validatePool(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return validate.Required(name, at)
	}
	var errs field.ErrorList
	errs = append(errs, validate.MaxBytes(name, at, resourcev1.PoolNameMaxLength)...)
	for part := range strings.SplitSeq(name, "/") {
		errs = append(errs, validate.FromMessages(part, at, validation.IsDNS1123Subdomain(part))...)
	}
	return errs
}

// validateName checks the name of an attribute or a capacity, NAME or DOMAIN/NAME.
func validateName(name string, at *field.Path) field.ErrorList {
	domain, id, qualified := strings.Cut(name, "/")
	switch {
	case !qualified:
		return validateIdentifier(name, at)
	case strings.Contains(id, "/"):
		return nil // as in Kubernetes
	}
	var errs field.ErrorList
	if domain == "" {
		errs = append(errs, field.Invalid(at, "", "the domain must not be empty"))
	} else {
		errs = append(errs, podspec.ValidateDriverName(domain, at)...)
	}
	if id == "" {
		return append(errs, field.Invalid(at, "", "the name must not be empty"))
	}
	return append(errs, validateIdentifier(id, at)...)
}

// shortened returns the name of an attribute or a capacity as paths show it: without its middle if it is longer than
// any valid name.
func shortened(name string) string {
	const limit, ellipsis = resourcev1.DeviceMaxDomainLength + len("/") + resourcev1.DeviceMaxIDLength, "..."
	if len(name) <= limit {
		return name
	}
	kept := limit - len(ellipsis)
	return name[:(kept+1)/2] + ellipsis + name[len(name)-kept/2:]
}

// declared checks a name that is required by one of the formats that Kubernetes declares in the types of the API.
func declared(name string, at *field.Path, format func(string, *field.Path) field.ErrorList) field.ErrorList {
	if name == "" {
		return validate.Required(name, at)
	}
	return format(name, at)
}

func validateIdentifier(id string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, validate.MaxBytes(id, at, resourcev1.DeviceMaxIDLength)...)
	return append(errs, validate.FromMessages(id, at, content.IsCIdentifier(id))...)
}

// validateSelectors checks expressions that select devices. Stored ones may use features that a later version of the
// server has added.
func validateSelectors(selectors []resourcev1.DeviceSelector, at *field.Path, stored bool) field.ErrorList {
	return validateList(selectors, resourcev1.DeviceSelectorsMaxSize, at, func(s *resourcev1.DeviceSelector, at *field.Path) field.ErrorList {
		if s.CEL == nil {
			return field.ErrorList{field.Required(at.Child("cel"), "")}
		}
		return validateExpression(s.CEL.Expression, at.Child("cel", "expression"), stored)
	})
}

func validateExpression(expression string, at *field.Path, stored bool) field.ErrorList {
	if errs := validate.MaxBytes(expression, at, resourcev1.CELSelectorExpressionMaxLength); len(errs) > 0 {
		return errs
	}
	kind := map[bool]environment.Type{false: environment.NewExpressions, true: environment.StoredExpressions}[stored]
	// The environment of the compiler takes megabytes, so it is built with the first expression, and kept.
	result := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true}).CompileCELExpression(expression, cel.Options{EnvType: &kind})
	switch {
	case result.Error == nil && result.MaxCost > resourcev1.CELSelectorExpressionMaxCost:
		return field.ErrorList{field.Forbidden(at, "too complex, exceeds cost limit")}
	case result.Error == nil:
		return nil
	case result.Error.Type == apiservercel.ErrorTypeRequired:
		return field.ErrorList{field.Required(at, result.Error.Detail)}
	case result.Error.Type == apiservercel.ErrorTypeInvalid:
		return field.ErrorList{field.Invalid(at, expression, result.Error.Detail)}
	}
	return field.ErrorList{field.InternalError(at, result.Error)}
}

// validateConfig checks the configuration of devices, which only their driver understands.
func validateConfig(c *resourcev1.DeviceConfiguration, at *field.Path, stored bool) field.ErrorList { //nolint:revive // flag-parameter: a property of the configuration
	opaque := at.Child("opaque")
	if c.Opaque == nil {
		return field.ErrorList{field.Required(opaque, "")}
	}
	limit := resourcev1.OpaqueParametersMaxLength
	if stored {
		limit = len(c.Opaque.Parameters.Raw)
	}
	return append(
		validateDriver(c.Opaque.Driver, opaque.Child("driver")),
		validateObject(c.Opaque.Parameters, limit, opaque.Child("parameters"))...)
}

// validateObject checks that a value of any kind is a JSON object that is not too large.
func validateObject(raw runtime.RawExtension, limit int, at *field.Path) field.ErrorList {
	var value any
	switch {
	case len(raw.Raw) == 0:
		return field.ErrorList{field.Required(at, "")}
	case len(raw.Raw) > limit:
		return field.ErrorList{field.TooLong(at, "", limit)}
	}
	if err := json.Unmarshal(raw.Raw, &value); err != nil {
		return field.ErrorList{field.Invalid(at, "<value omitted>", fmt.Sprintf("error parsing data as JSON: %v", err))}
	}
	if value == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	if _, ok := value.(map[string]any); !ok {
		return field.ErrorList{field.Invalid(at, "<value omitted>", "must be a valid JSON object")}
	}
	return nil
}
