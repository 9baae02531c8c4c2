package core

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/podspec"
)

// The names of resources in ResourceQuotas and LimitRanges. A name without a domain is one of
// Kubernetes' own; any other is an extended resource.

// countedNames returns the names in quotas that limit numbers of objects.
func countedNames() []corev1.ResourceName {
	return []corev1.ResourceName{
		corev1.ResourcePods, corev1.ResourceServices, corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers,
		corev1.ResourceReplicationControllers, corev1.ResourceQuotas, corev1.ResourceSecrets, corev1.ResourceConfigMaps,
		corev1.ResourcePersistentVolumeClaims,
	}
}

// isQuotaName reports whether a name without a domain may be used in a quota.
func isQuotaName(name corev1.ResourceName) bool {
	return podspec.IsStandard(name) && name != corev1.ResourceStorage
}

func hasDomain(name corev1.ResourceName) bool { return strings.Contains(string(name), "/") }

// validateQuotaList checks the limits of a quota, or its usage.
func validateQuotaList(list corev1.ResourceList, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(list)) {
		at, quantity := path.Key(string(name)), list[name]
		errs = append(errs, podspec.ValidateResourceName(name, at)...)
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
