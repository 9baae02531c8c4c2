package registry

import (
	"cmp"
	"fmt"
	"slices"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The checks that rows are composed of. Each returns what is wrong with one field,
// in the words that users of Kubernetes know.

// immutableText is what an attempt to change an immutable field is told.
const immutableText = apivalidation.FieldImmutableErrorMsg

// required checks that a field is not empty.
func required[T ~string](value T, path *field.Path) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return nil
}

// oneOf checks that a field is set to one of the values it may have.
func oneOf[T ~string](value T, path *field.Path, allowed ...T) field.ErrorList {
	switch {
	case value == "":
		return field.ErrorList{field.Required(path, "")}
	case !slices.Contains(allowed, value):
		return field.ErrorList{field.NotSupported(path, value, allowed)}
	}
	return nil
}

// oneOfPtr checks a field that may be absent.
func oneOfPtr[T ~string](value *T, path *field.Path, allowed ...T) field.ErrorList {
	if value == nil {
		return nil
	}
	return oneOf(*value, path, allowed...)
}

// wellFormed turns what a rule of apimachinery says about a value into errors.
func wellFormed(value any, path *field.Path, complaints []string) field.ErrorList {
	var errs field.ErrorList
	for _, complaint := range complaints {
		errs = append(errs, field.Invalid(path, value, complaint))
	}
	return errs
}

// requiredLabel checks a name that has to be a DNS label.
func requiredLabel(value string, path *field.Path) field.ErrorList {
	if value == "" {
		return required(value, path)
	}
	return wellFormed(value, path, validation.IsDNS1123Label(value))
}

// optionalSubdomain checks a reference by name that may be absent.
func optionalSubdomain(value string, path *field.Path) field.ErrorList {
	if value == "" {
		return nil
	}
	return wellFormed(value, path, validation.IsDNS1123Subdomain(value))
}

// notNegative checks a number that may be absent.
func notNegative[N int32 | int64](value *N, path *field.Path) field.ErrorList {
	if value == nil {
		return nil
	}
	return apivalidation.ValidateNonnegativeField(int64(*value), path)
}

// positive checks a number that may be absent.
func positive[N int32 | int64](value *N, path *field.Path) field.ErrorList {
	if value == nil || *value > 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, *value, "must be greater than zero")}
}

// countOrPercent checks a number that may be given as a share of another one.
func countOrPercent(value *intstr.IntOrString, path *field.Path) field.ErrorList {
	switch {
	case value == nil:
		return nil
	case value.Type == intstr.String:
		return wellFormed(value.String(), path, validation.IsValidPercent(value.StrVal))
	}
	return apivalidation.ValidateNonnegativeField(int64(value.IntVal), path)
}

// immutable checks that a field is what it was.
func immutable(value, old any, path *field.Path) field.ErrorList {
	return apivalidation.ValidateImmutableField(value, old, path)
}

// unique checks that no two of a list have the same name. Empty names are reported elsewhere.
func unique[T any, K comparable](things []T, path *field.Path, name func(T) K, child string) field.ErrorList {
	var errs field.ErrorList
	var empty K
	seen := map[K]bool{}
	for i, thing := range things {
		n := name(thing)
		if n != empty && seen[n] {
			errs = append(errs, field.Duplicate(path.Index(i).Child(child), n))
		}
		seen[n] = true
	}
	return errs
}

// each applies a check to the elements of a list.
func each[T any](things []T, path *field.Path, check func(*T, *field.Path) field.ErrorList) field.ErrorList {
	var errs field.ErrorList
	for i := range things {
		errs = append(errs, check(&things[i], path.Index(i))...)
	}
	return errs
}

// matchingSelector checks the selector of a kind that makes pods from a template:
// it is there, selects something, and selects what the template makes; a controller
// with another one would make pods for ever.
func matchingSelector(kind string, selector *metav1.LabelSelector, made map[string]string, spec *field.Path) field.ErrorList {
	path := spec.Child("selector")
	if selector == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	errs := validLabelSelector(selector, path)
	if len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		errs = append(errs, field.Invalid(path, selector, "empty selector is invalid for "+kind))
	}
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	switch {
	case err != nil && len(errs) == 0:
		errs = append(errs, field.Invalid(path, selector, "invalid label selector"))
	case err == nil && !parsed.Empty() && !parsed.Matches(labels.Set(made)):
		errs = append(errs, field.Invalid(spec.Child("template", "metadata", "labels"), made, "`selector` does not match template `labels`"))
	}
	return errs
}

// validLabelSelector checks the form of a selector.
func validLabelSelector(selector *metav1.LabelSelector, path *field.Path) field.ErrorList {
	return metav1validation.ValidateLabelSelector(selector, metav1validation.LabelSelectorValidationOptions{}, path)
}

// inRange checks a number against inclusive bounds.
func inRange[N cmp.Ordered](value N, path *field.Path, low, high N) field.ErrorList {
	if value < low || value > high {
		return field.ErrorList{field.Invalid(path, value, fmt.Sprintf("must be between %v and %v, inclusive", low, high))}
	}
	return nil
}
