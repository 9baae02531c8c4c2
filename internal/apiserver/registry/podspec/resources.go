package podspec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

func validateResources(r *corev1.ResourceRequirements, at *field.Path) field.ErrorList {
	limits, requests := at.Child("limits"), at.Child("requests")
	errs := slices.Concat(
		validateContainerQuantities(r.Limits, limits),
		validateContainerQuantities(r.Requests, requests),
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

// validatePodResources checks the resources of a pod as a whole.
func validatePodResources(r *corev1.ResourceRequirements, at *field.Path) field.ErrorList {
	if r == nil {
		return nil
	}
	errs := validateResources(r, at)
	for name, list := range map[string]corev1.ResourceList{"limits": r.Limits, "requests": r.Requests} {
		for resource := range list {
			if resource != corev1.ResourceCPU && resource != corev1.ResourceMemory && !isHugePages(resource) {
				errs = append(errs, field.NotSupported(at.Child(name).Key(string(resource)), resource, []string{"cpu", corev1.ResourceHugePagesPrefix, "memory"}))
			}
		}
	}
	if r.Claims != nil {
		errs = append(errs, field.Forbidden(at.Child("claims"), "claims may not be set for Resources at pod-level"))
	}
	return errs
}

// validateResizePolicy checks what is to happen when a container is resized. A pod that does not
// restart its containers does not do so for that either.
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

// validateHugePages: a container with huge pages must also request CPU or memory, by which it is
// scheduled.
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

// isExtended reports whether a resource is not one of Kubernetes' own, such as a device.
func isExtended(name corev1.ResourceName) bool {
	domain, _, qualified := strings.Cut(string(name), "/")
	return qualified && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io")
}

// mayOvercommit reports whether the limit of a resource may be above its request. It may
// not for huge pages and devices.
func mayOvercommit(name corev1.ResourceName) bool { return !isHugePages(name) && !isExtended(name) }

func validateContainerQuantities(list corev1.ResourceList, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(list)) {
		quantity := list[name]
		key := at.Key(string(name))
		errs = append(errs, ValidateContainerResource(name, key)...)
		errs = append(errs, validateQuantity(quantity, key)...)
		if isExtended(name) && quantity.MilliValue()%1000 != 0 {
			errs = append(errs, field.Invalid(key, quantity.String(), "must be an integer"))
		}
	}
	return errs
}

// ValidateContainerResource checks the name of a resource that a container can have.
func ValidateContainerResource(name corev1.ResourceName, at *field.Path) field.ErrorList {
	if errs := validate.FromMessages(name, at, validation.IsQualifiedName(string(name))); len(errs) > 0 {
		return errs
	}
	standard := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}
	if strings.Contains(string(name), "/") || isHugePages(name) || slices.Contains(standard, name) {
		return nil
	}
	return field.ErrorList{
		field.Invalid(at, name, "must be a standard resource type or fully qualified"),
		field.Invalid(at, name, "must be a standard resource for containers"),
	}
}

// ValidateOverhead checks what the runtime of a pod's containers costs. The path of an error is
// that of a limit, as Kubernetes has it.
func ValidateOverhead(overhead corev1.ResourceList, at *field.Path) field.ErrorList {
	return validateResources(&corev1.ResourceRequirements{Limits: overhead}, at)
}

// ValidateQuantities validates the quantities of a list of resources.
func ValidateQuantities(list corev1.ResourceList, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(list)) {
		errs = append(errs, validateQuantity(list[name], at.Key(string(name)))...)
	}
	return errs
}

func validateQuantity(quantity resource.Quantity, at *field.Path) field.ErrorList {
	if quantity.Sign() < 0 {
		return field.ErrorList{field.Invalid(at, quantity.String(), "must be greater than or equal to 0")}
	}
	return nil
}
