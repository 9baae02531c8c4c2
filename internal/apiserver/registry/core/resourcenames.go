package core

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/podspec"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// The names of resources in ResourceQuotas and LimitRanges. A name without a domain is one of
// Kubernetes' own; any other is an extended resource.

// countedNames returns the names in quotas that are numbers of objects.
func countedNames() []corev1.ResourceName {
	return []corev1.ResourceName{
		corev1.ResourcePods, corev1.ResourceServices, corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers,
		corev1.ResourceReplicationControllers, corev1.ResourceQuotas, corev1.ResourceSecrets, corev1.ResourceConfigMaps,
		corev1.ResourcePersistentVolumeClaims,
	}
}

// containerNames returns the names of what containers can have.
func containerNames() []corev1.ResourceName {
	return []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}
}

// isQuotaName reports whether a name without a domain may be used in a quota.
func isQuotaName(name corev1.ResourceName) bool {
	if strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) || strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix) {
		return true
	}
	requested, isRequest := strings.CutPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
	limited, isLimit := strings.CutPrefix(string(name), "limits.")
	switch {
	case isRequest:
		return requested == string(corev1.ResourceStorage) || slices.Contains(containerNames(), corev1.ResourceName(requested))
	case isLimit:
		return slices.Contains(containerNames(), corev1.ResourceName(limited))
	}
	return slices.Contains(containerNames(), name) || slices.Contains(countedNames(), name)
}

func hasDomain(name corev1.ResourceName) bool { return strings.Contains(string(name), "/") }

// validateResourceName checks the name of any resource.
func validateResourceName(name corev1.ResourceName, at *field.Path) field.ErrorList {
	if errs := validate.FromMessages(name, at, validation.IsQualifiedName(string(name))); len(errs) > 0 {
		return errs
	}
	if !hasDomain(name) && name != corev1.ResourceStorage && !isQuotaName(name) {
		return field.ErrorList{field.Invalid(at, name, "must be a standard resource type or fully qualified")}
	}
	return nil
}

// validateContainerName checks the name of something that containers can have.
func validateContainerName(name corev1.ResourceName, at *field.Path) field.ErrorList {
	errs := validateResourceName(name, at)
	isStandard := slices.Contains(containerNames(), name) || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
	switch {
	case !hasDomain(name) && !isStandard:
		errs = append(errs, field.Invalid(at, name, "must be a standard resource for containers"))
	case !podspec.IsNative(name) && !podspec.IsExtended(name):
		errs = append(errs, field.Invalid(at, name, "doesn't follow extended resource name standard"))
	}
	return errs
}

// validateQuotaList checks what a quota limits, or how much of it is used.
func validateQuotaList(list corev1.ResourceList, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(list)) {
		at, quantity := path.Key(string(name)), list[name]
		errs = append(errs, validateResourceName(name, at)...)
		if !hasDomain(name) && !isQuotaName(name) {
			errs = append(errs, field.Invalid(at, name, "must be a standard resource for quota"))
		}
		errs = append(errs, podspec.ValidateQuantities(corev1.ResourceList{name: quantity}, path)...)
		isNumber := slices.Contains(countedNames(), name) || podspec.IsExtended(name)
		if isNumber && quantity.MilliValue()%1000 != 0 {
			errs = append(errs, field.Invalid(at, quantity, "must be an integer"))
		}
	}
	return errs
}
