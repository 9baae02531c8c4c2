// Package validate has the checks from which the validation of a resource is composed. Each returns the errors about
// one field, in Kubernetes' wording.
package validate

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// OneOf checks that a field has one of the allowed values, which the error lists in this order.
func OneOf[T ~string](value T, path *field.Path, allowed ...T) field.ErrorList {
	switch {
	case value == "":
		return Required(value, path)
	case !slices.Contains(allowed, value):
		return field.ErrorList{field.NotSupported(path, value, allowed)}
	}
	return nil
}

// FromMessages turns the messages of a check of apimachinery into errors.
func FromMessages(value any, path *field.Path, complaints []string) field.ErrorList {
	var errs field.ErrorList
	for _, complaint := range complaints {
		errs = append(errs, field.Invalid(path, value, complaint))
	}
	return errs
}

// RequiredLabel checks a name that has to be a DNS label.
func RequiredLabel(value string, path *field.Path) field.ErrorList {
	if value == "" {
		return Required(value, path)
	}
	return FromMessages(value, path, validation.IsDNS1123Label(value))
}

// OptionalSubdomain checks a reference by name that may be absent.
func OptionalSubdomain(value string, path *field.Path) field.ErrorList {
	if value == "" {
		return nil
	}
	return FromMessages(value, path, validation.IsDNS1123Subdomain(value))
}

// NotNegative checks a number that may be absent.
func NotNegative[N int32 | int64](value *N, path *field.Path) field.ErrorList {
	if value == nil {
		return nil
	}
	return apivalidation.ValidateNonnegativeField(int64(*value), path)
}

// Positive checks a number that may be absent.
func Positive[N int32 | int64](value *N, path *field.Path) field.ErrorList {
	if value == nil || *value > 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, *value, "must be greater than zero")}
}

// IntOrPercent checks a number or a percentage.
func IntOrPercent(value *intstr.IntOrString, path *field.Path) field.ErrorList {
	switch {
	case value == nil:
		return nil
	case value.Type == intstr.String:
		return FromMessages(value.String(), path, validation.IsValidPercent(value.StrVal))
	}
	return apivalidation.ValidateNonnegativeField(int64(value.IntVal), path)
}

// Immutable checks that a field has not changed.
func Immutable(value, old any, path *field.Path) field.ErrorList {
	return apivalidation.ValidateImmutableField(value, old, path)
}

// NoDuplicates checks that no two elements of a list have the same name. child is the field that has the name; without
// child, errors point to the element. Empty names are reported elsewhere.
func NoDuplicates[T any, K comparable](things []T, path *field.Path, name func(T) K, child string) field.ErrorList {
	var empty K
	return duplicates(things, path, child, func(thing T) (K, bool) { n := name(thing); return n, n != empty })
}

// DistinctNames is NoDuplicates, except that two elements may not both have an empty name, either.
func DistinctNames[T any, K comparable](things []T, path *field.Path, name func(T) K, child string) field.ErrorList {
	return duplicates(things, path, child, func(thing T) (K, bool) { return name(thing), true })
}

// Distinct checks that no two values of a list are the same, nor both empty.
func Distinct[T comparable](values []T, path *field.Path) field.ErrorList {
	return DistinctNames(values, path, func(value T) T { return value }, "")
}

// duplicates returns an error for each element of a list whose name another one before it has. name returns whether a name
// counts.
func duplicates[T any, K comparable](things []T, path *field.Path, child string, name func(T) (K, bool)) field.ErrorList {
	seen := map[K]bool{} // however many elements have no name
	return Each(things, path, func(thing *T, at *field.Path) field.ErrorList {
		n, counts := name(*thing)
		if !counts || !seen[n] {
			if counts {
				seen[n] = true
			}
			return nil
		}
		if child != "" {
			at = at.Child(child)
		}
		return field.ErrorList{field.Duplicate(at, n)}
	})
}

// Each applies a check to the elements of a list, until it has found more errors than a response lists: each error
// takes a hundred times the memory of an empty element.
func Each[T any](things []T, path *field.Path, check func(*T, *field.Path) field.ErrorList) field.ErrorList {
	var errs field.ErrorList
	for i := range things {
		errs = append(errs, check(&things[i], path.Index(i))...)
		if len(errs) > maxListErrors {
			break
		}
	}
	return errs
}

// SelectorRules are the differences between kinds in the checks of selectors.
type SelectorRules struct {
	// Empty is upstream's message about a selector that selects everything. "": such a selector is valid.
	Empty string
	// Optional: the selector may be absent. It then selects nothing, and the check of the template's labels reports it.
	Optional bool
	// Invalid is an additional message about a selector that does not parse. Nil: no message.
	Invalid *string
}

// MatchingSelector checks the selector of a kind that creates pods from a template: it
// must not be empty, and must select the pods of the template. Otherwise the controller
// would create pods forever.
func MatchingSelector(rules SelectorRules, selector *metav1.LabelSelector, made map[string]string, spec *field.Path) field.ErrorList {
	path := spec.Child("selector")
	errs := LabelSelector(selector, path)
	switch {
	case selector == nil && !rules.Optional: // it selects nothing
		errs = append(errs, field.Required(path, ""))
	case selector != nil && rules.Empty != "" && len(selector.MatchLabels)+len(selector.MatchExpressions) == 0:
		errs = append(errs, field.Invalid(path, selector, rules.Empty))
	}
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	switch {
	case err != nil && rules.Invalid != nil:
		errs = append(errs, field.Invalid(path, selector, *rules.Invalid))
	case err == nil && !parsed.Empty() && !parsed.Matches(labels.Set(made)):
		errs = append(errs, field.Invalid(spec.Child("template", "metadata", "labels"), made, "`selector` does not match template `labels`"))
	}
	return errs
}

// LabelSelector checks the form of a selector.
func LabelSelector(selector *metav1.LabelSelector, path *field.Path) field.ErrorList {
	return metav1validation.ValidateLabelSelector(selector, metav1validation.LabelSelectorValidationOptions{}, path)
}

// InRange checks a number against inclusive bounds.
func InRange[N cmp.Ordered](value N, path *field.Path, low, high N) field.ErrorList {
	if value < low || value > high {
		return field.ErrorList{field.Invalid(path, value, fmt.Sprintf("must be between %v and %v, inclusive", low, high))}
	}
	return nil
}

// Counts checks numbers of pods in a status.
func Counts(path *field.Path, numbers map[string]int32) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		n := numbers[name]
		errs = append(errs, NotNegative(&n, path.Child(name))...)
	}
	return errs
}

// NoMoreThan checks that no number of pods in a status is greater than limit.
func NoMoreThan(limit int32, limitName string, path *field.Path, numbers map[string]int32) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		if n := numbers[name]; n > limit {
			errs = append(errs, field.Invalid(path.Child(name), n, "cannot be greater than "+limitName))
		}
	}
	return errs
}

// TargetPort checks the number or the name of a port.
func TargetPort(port intstr.IntOrString, path *field.Path) field.ErrorList {
	if port.Type == intstr.Int {
		return Port(port.IntVal, path)
	}
	return FromMessages(port.StrVal, path, validation.IsValidPortName(port.StrVal))
}

// Port checks the number of a port.
func Port(port int32, path *field.Path) field.ErrorList {
	return FromMessages(port, path, validation.IsValidPortNum(int(port)))
}

// Protocol checks the protocol of a port.
func Protocol(protocol corev1.Protocol, path *field.Path) field.ErrorList {
	return OneOf(protocol, path, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)
}

// OptionalLabelSelector checks the form of a selector that may be absent.
func OptionalLabelSelector(s *metav1.LabelSelector, at *field.Path) field.ErrorList {
	if s == nil {
		return nil
	}
	return LabelSelector(s, at)
}

// OptionalLabel checks a DNS label that may be absent.
func OptionalLabel(value string, path *field.Path) field.ErrorList {
	if value == "" {
		return nil
	}
	return FromMessages(value, path, validation.IsDNS1123Label(value))
}

// SetMembers returns the JSON names of the fields that are set in a struct of pointers.
// The unions of the API are such structs, and new members are added to them.
func SetMembers(union any) []string {
	var names []string
	eachMember(union, func(name string, f reflect.Value) {
		if !f.IsNil() {
			names = append(names, name)
		}
	})
	return names
}

// UnsetMembers sets pointers in a struct, by their JSON names, to nil.
func UnsetMembers(union any, names []string) {
	eachMember(union, func(name string, f reflect.Value) {
		if slices.Contains(names, name) {
			f.SetZero()
		}
	})
}

// eachMember calls a function with each pointer in a struct, and its JSON name.
func eachMember(union any, call func(name string, f reflect.Value)) {
	v := reflect.ValueOf(union).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Pointer {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			call(name, f)
		}
	}
}
