package core

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/podspec"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

func limitRanges() registry.Resource {
	return registry.Define[corev1.LimitRange, corev1.LimitRangeList](registry.Resource{
		GroupVersion:        corev1.SchemeGroupVersion,
		Kind:                "LimitRange",
		Plural:              "limitranges",
		Namespaced:          true,
		ShortNames:          []string{"limits"},
		ValidateName:        apivalidation.NameIsDNSSubdomain,
		CreateOnUpdate:      true,
		UnconditionalUpdate: true,
	}, []table.Column{
		table.Text("Created At", "When the object was created.", func(r *corev1.LimitRange) string {
			return r.CreationTimestamp.UTC().Format(time.RFC3339)
		}),
	}, registry.Strategy[*corev1.LimitRange]{
		Default: func(r *corev1.LimitRange) {
			for i := range r.Spec.Limits {
				defaultLimits(&r.Spec.Limits[i])
			}
		},
		PrepareForCreate: func(r *corev1.LimitRange) { registry.SetDefault(&r.Name, string(uuid.NewUUID())) },
		Validate:         validateLimitRange,
	})
}

// defaultLimits sets the defaults for containers: the limit is the maximum, and the request is the limit or else the
// minimum.
func defaultLimits(l *corev1.LimitRangeItem) {
	if l.Type != corev1.LimitTypeContainer {
		return
	}
	l.Default = withDefaults(l.Default, l.Max)
	l.DefaultRequest = withDefaults(l.DefaultRequest, l.Default)
	l.DefaultRequest = withDefaults(l.DefaultRequest, l.Min)
}

// withDefaults returns a list with the missing resources added from another list. It is never nil.
func withDefaults(list, defaults corev1.ResourceList) corev1.ResourceList {
	all := corev1.ResourceList{}
	for name, quantity := range defaults {
		all[name] = quantity.DeepCopy()
	}
	maps.Copy(all, list)
	return all
}

func validateLimitRange(r *corev1.LimitRange) field.ErrorList {
	var errs field.ErrorList
	types := map[corev1.LimitType]bool{}
	path := field.NewPath("spec", "limits")
	for i := range r.Spec.Limits {
		l, at := &r.Spec.Limits[i], path.Index(i)
		errs = append(errs, validateLimitType(l.Type, at.Child("type"))...)
		if types[l.Type] {
			errs = append(errs, field.Duplicate(at.Child("type"), l.Type))
		}
		types[l.Type] = true
		errs = append(errs, validateLimits(l, at)...)
	}
	return errs
}

func validateLimitType(limitType corev1.LimitType, at *field.Path) field.ErrorList {
	if errs := validate.FromMessages(limitType, at, validation.IsQualifiedName(string(limitType))); len(errs) > 0 {
		return errs
	}
	standard := []corev1.LimitType{corev1.LimitTypePod, corev1.LimitTypeContainer, corev1.LimitTypePersistentVolumeClaim}
	if !strings.Contains(string(limitType), "/") && !slices.Contains(standard, limitType) {
		return field.ErrorList{field.Invalid(at, limitType, "must be a standard limit type or fully qualified")}
	}
	return nil
}

// validateLimits checks the limits of one type. Only containers have defaults; pods have none.
func validateLimits(l *corev1.LimitRangeItem, at *field.Path) field.ErrorList {
	errs := append(validateLimitNames(l.Type, l.Max, at.Child("max")), validateLimitNames(l.Type, l.Min, at.Child("min"))...)
	if l.Type == corev1.LimitTypePod {
		if len(l.Default) > 0 {
			errs = append(errs, field.Forbidden(at.Child("default"), "may not be specified when `type` is 'Pod'"))
		}
		if len(l.DefaultRequest) > 0 {
			errs = append(errs, field.Forbidden(at.Child("defaultRequest"), "may not be specified when `type` is 'Pod'"))
		}
		l = &corev1.LimitRangeItem{Type: l.Type, Max: l.Max, Min: l.Min, MaxLimitRequestRatio: l.MaxLimitRequestRatio}
	}
	errs = append(errs, validateLimitNames(l.Type, l.Default, at.Child("default"))...)
	errs = append(errs, validateLimitNames(l.Type, l.DefaultRequest, at.Child("defaultRequest"))...)
	_, hasMin := l.Min[corev1.ResourceStorage]
	_, hasMax := l.Max[corev1.ResourceStorage]
	if l.Type == corev1.LimitTypePersistentVolumeClaim && !hasMin && !hasMax {
		errs = append(errs, field.Required(at.Child("limits"), "either minimum or maximum storage value is required, but neither was provided"))
	}
	errs = append(errs, validateLimitNames(l.Type, l.MaxLimitRequestRatio, at.Child("maxLimitRequestRatio"))...)
	names := map[corev1.ResourceName]bool{}
	for _, list := range []corev1.ResourceList{l.Max, l.Min, l.Default, l.DefaultRequest, l.MaxLimitRequestRatio} {
		for name := range list {
			names[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		errs = append(errs, validateOrder(l, name, at)...)
		errs = append(errs, validateRatio(l, name, at.Child("maxLimitRequestRatio").Key(string(name)))...)
	}
	return errs
}

// validateLimitNames checks the names of resources. Volume claims and custom types have resources that containers do
// not have.
func validateLimitNames(limitType corev1.LimitType, list corev1.ResourceList, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if limitType == corev1.LimitTypePod || limitType == corev1.LimitTypeContainer {
			errs = append(errs, podspec.ValidateContainerResource(name, path.Key(string(name)))...)
		} else {
			errs = append(errs, podspec.ValidateResourceName(name, path.Key(string(name)))...)
		}
	}
	return errs
}

// validateOrder checks that the limits of one resource are in order: the minimum, the default request,
// the default limit, the maximum.
func validateOrder(l *corev1.LimitRangeItem, name corev1.ResourceName, at *field.Path) field.ErrorList {
	type bound struct {
		list corev1.ResourceList
		what string
	}
	least, most := bound{l.Min, "min value"}, bound{l.Max, "max value"}
	request, limit := bound{l.DefaultRequest, "default request value"}, bound{l.Default, "default limit value"}
	plainLimit := bound{l.Default, "default value"}
	var errs field.ErrorList
	for _, check := range []struct {
		low, high bound
		child     string
		shown     corev1.ResourceList
	}{
		{least, most, "min", l.Min},
		{least, request, "defaultRequest", l.DefaultRequest},
		{request, most, "defaultRequest", l.DefaultRequest},
		{request, limit, "defaultRequest", l.DefaultRequest},
		{least, plainLimit, "default", l.Min},
		{plainLimit, most, "default", l.Max},
	} {
		low, hasLow := check.low.list[name]
		high, hasHigh := check.high.list[name]
		if hasLow && hasHigh && low.Cmp(high) > 0 {
			errs = append(errs, field.Invalid(at.Child(check.child).Key(string(name)), check.shown[name], fmt.Sprintf(
				"%s %s is greater than %s %s", check.low.what, low.String(), check.high.what, high.String())))
		}
	}
	ordered, isRequested := l.DefaultRequest[name]
	allowed, isLimited := l.Default[name]
	mayDiffer := podspec.IsNative(name) && !strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
	if !mayDiffer && isRequested && isLimited && ordered.Cmp(allowed) != 0 {
		errs = append(errs, field.Invalid(at.Child("defaultRequest").Key(string(name)), ordered, fmt.Sprintf(
			"default value %s must equal to defaultRequest value %s in %s", allowed.String(), ordered.String(), name)))
	}
	return errs
}

// validateRatio checks the maximum ratio of limit to request: at least 1, and at most the ratio of the maximum to the
// minimum.
func validateRatio(l *corev1.LimitRangeItem, name corev1.ResourceName, at *field.Path) field.ErrorList {
	ratio, ok := l.MaxLimitRequestRatio[name]
	if !ok {
		return nil
	}
	var errs field.ErrorList
	if ratio.Cmp(*resource.NewQuantity(1, resource.DecimalSI)) < 0 {
		errs = append(errs, field.Invalid(at, ratio, fmt.Sprintf("ratio %s is less than 1", ratio.String())))
	}
	least, hasMin := l.Min[name]
	most, hasMax := l.Max[name]
	if !hasMin || !hasMax {
		return errs
	}
	value, low, high := float64(ratio.Value()), least.Value(), most.Value()
	if ratio.Value() < resource.MaxMilliValue && low < resource.MaxMilliValue && high < resource.MaxMilliValue {
		value, low, high = float64(ratio.MilliValue())/1000, least.MilliValue(), most.MilliValue()
	}
	if widest := float64(high) / float64(low); value > widest {
		errs = append(errs, field.Invalid(at, ratio, fmt.Sprintf("ratio %s is greater than max/min = %f", ratio.String(), widest)))
	}
	return errs
}
