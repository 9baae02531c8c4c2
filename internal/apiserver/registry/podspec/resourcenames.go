package podspec

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// IsNative reports whether a resource is one of Kubernetes' own.
func IsNative(name corev1.ResourceName) bool {
	return !isQualified(name) || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// IsExtended reports whether a resource, such as a device, is not one of Kubernetes' own, and has a valid name for
// requests in a quota.
func IsExtended(name corev1.ResourceName) bool {
	return !IsNative(name) && !strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix) &&
		len(validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+string(name))) == 0
}

func isQualified(name corev1.ResourceName) bool { return strings.Contains(string(name), "/") }

// ValidateContainerResource checks the name of a resource that a container can have.
func ValidateContainerResource(name corev1.ResourceName, at *field.Path) field.ErrorList {
	errs := ValidateResourceName(name, at)
	switch {
	case isQualified(name) && !IsNative(name) && !IsExtended(name):
		errs = append(errs, field.Invalid(at, name, "doesn't follow extended resource name standard"))
	case !isQualified(name) && !isHugePages(name) && !slices.Contains(containerResources(), name):
		errs = append(errs, field.Invalid(at, name, "must be a standard resource for containers"))
	}
	return errs
}

// validatePodResource checks the name of a resource that a pod as a whole can have.
func validatePodResource(name corev1.ResourceName, at *field.Path) field.ErrorList {
	if errs := ValidateResourceName(name, at); len(errs) > 0 {
		return errs
	}
	if name == corev1.ResourceCPU || name == corev1.ResourceMemory || isHugePages(name) {
		return nil
	}
	return field.ErrorList{field.NotSupported(at, name, []string{"cpu", corev1.ResourceHugePagesPrefix, "memory"})}
}

// ValidateResourceName checks the form of a name. A name without a domain must be a known one.
func ValidateResourceName(name corev1.ResourceName, at *field.Path) field.ErrorList {
	if errs := validate.FromMessages(name, at, validation.IsQualifiedName(string(name))); len(errs) > 0 {
		return errs
	}
	if isQualified(name) || IsStandard(name) {
		return nil
	}
	return field.ErrorList{field.Invalid(at, name, "must be a standard resource type or fully qualified")}
}

// IsStandard reports whether a name without a domain is a known resource of containers or of quotas.
func IsStandard(name corev1.ResourceName) bool {
	return isHugePages(name) || strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix) ||
		slices.Contains(containerResources(), name) || slices.Contains(quotaResources(), name)
}

func containerResources() []corev1.ResourceName {
	return []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}
}

// quotaResources are the known names that only quotas have.
func quotaResources() []corev1.ResourceName {
	return []corev1.ResourceName{
		corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory, corev1.ResourceRequestsEphemeralStorage, corev1.ResourceRequestsStorage,
		corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage,
		corev1.ResourcePods, corev1.ResourceQuotas, corev1.ResourceServices, corev1.ResourceReplicationControllers,
		corev1.ResourceSecrets, corev1.ResourceConfigMaps, corev1.ResourcePersistentVolumeClaims, corev1.ResourceStorage,
		corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers,
	}
}
