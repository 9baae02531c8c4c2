package podspec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// nameCheck checks the name of a resource and reports errors at a path.
type nameCheck func(corev1.ResourceName, *field.Path) field.ErrorList

// validateResources checks the resources of a container, or of a pod as a whole: their names must pass the check, and
// the claims must be claims of the pod.
func validateResources(r *corev1.ResourceRequirements, check nameCheck, claims claimNames, at *field.Path) field.ErrorList {
	limits, requests := at.Child("limits"), at.Child("requests")
	errs := slices.Concat(
		validateAmounts(r.Limits, check, limits),
		validateAmounts(r.Requests, check, requests),
		validateClaimReferences(r.Claims, claims, at.Child("claims")),
	)
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		request := r.Requests[name]
		switch limit, limited := r.Limits[name]; {
		case limited && !mayOvercommit(name) && request.Cmp(limit) != 0:
			errs = append(errs, field.Invalid(requests, request.String(), fmt.Sprintf("must be equal to %s limit of %s", name, limit.String())))
		case limited && request.Cmp(limit) > 0:
			errs = append(errs, field.Invalid(requests, request.String(), fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String())))
		case !limited && !mayOvercommit(name):
			errs = append(errs, field.Required(limits, "Limit must be set for non overcommitable resources"))
		}
	}
	return append(errs, validateHugePages(r, at)...)
}

// validateResizePolicy checks the restart policies for resizes. A pod that never restarts its containers does not
// restart them for a resize either.
func validateResizePolicy(policies []corev1.ContainerResizePolicy, restart corev1.RestartPolicy, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[corev1.ResourceName]bool{}
	for i, p := range policies {
		if seen[p.ResourceName] {
			errs = append(errs, field.Duplicate(path.Index(i), p.ResourceName))
		}
		seen[p.ResourceName] = true
		errs = append(errs, validate.OneOf(p.ResourceName, path, corev1.ResourceCPU, corev1.ResourceMemory)...)
		errs = append(errs, validate.OneOf(p.RestartPolicy, path, corev1.NotRequired, corev1.RestartContainer)...)
		if restart == corev1.RestartPolicyNever && p.RestartPolicy != corev1.NotRequired {
			errs = append(errs, field.Invalid(path, p.RestartPolicy, "must be 'NotRequired' when pod `restartPolicy` is 'Never'"))
		}
	}
	return errs
}

// validateHugePages checks that a container with huge pages also requests CPU or memory, which the scheduler needs.
func validateHugePages(r *corev1.ResourceRequirements, at *field.Path) field.ErrorList {
	huge, plain := false, false
	for _, list := range []corev1.ResourceList{r.Limits, r.Requests} {
		for name := range list {
			huge = huge || isHugePages(name)
			plain = plain || name == corev1.ResourceCPU || name == corev1.ResourceMemory
		}
	}
	if huge && !plain {
		return field.ErrorList{field.Forbidden(at, "HugePages require cpu or memory")}
	}
	return nil
}

func isHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// mayOvercommit reports whether the limit of a resource may be above its request. It may
// not for huge pages and devices.
func mayOvercommit(name corev1.ResourceName) bool { return !isHugePages(name) && IsNative(name) }

func validateAmounts(list corev1.ResourceList, check nameCheck, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(list)) {
		quantity := list[name]
		key := at.Key(string(name))
		errs = append(errs, check(name, key)...)
		errs = append(errs, ValidateQuantity(quantity, key)...)
		if IsExtended(name) && quantity.MilliValue()%1000 != 0 {
			errs = append(errs, field.Invalid(key, quantity.String(), "must be an integer"))
		}
		if isHugePages(name) && !isWholePages(name, quantity) {
			errs = append(errs, field.Invalid(key, quantity.String(), fmt.Sprintf("%s is not positive integer multiple of %s", quantity.String(), name)))
		}
	}
	return errs
}

// isWholePages reports whether an amount is a multiple of the page size in the resource's name.
func isWholePages(name corev1.ResourceName, quantity resource.Quantity) bool {
	size, err := resource.ParseQuantity(strings.TrimPrefix(string(name), corev1.ResourceHugePagesPrefix))
	if err != nil || size.Sign() <= 0 || size.MilliValue()%1000 != 0 {
		return false
	}
	return quantity.Value()%size.Value() == 0
}

// ValidateOverhead checks the overhead of a pod's runtime. As in Kubernetes, the path of an error is the path of a
// limit.
func ValidateOverhead(overhead corev1.ResourceList, at *field.Path) field.ErrorList {
	return validateResources(&corev1.ResourceRequirements{Limits: overhead}, ValidateContainerResource, claimNames{}, at)
}

// ValidateQuantities validates the quantities of a list of resources.
func ValidateQuantities(list corev1.ResourceList, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(list)) {
		errs = append(errs, ValidateQuantity(list[name], at.Key(string(name)))...)
	}
	return errs
}

// ValidateQuantity checks that an amount of something is not negative.
func ValidateQuantity(quantity resource.Quantity, at *field.Path) field.ErrorList {
	if quantity.Sign() < 0 {
		return field.ErrorList{field.Invalid(at, quantity.String(), "must be greater than or equal to 0")}
	}
	return nil
}
