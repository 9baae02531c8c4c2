package podspec

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// validateResourceClaims checks a pod's claims on devices: each names a ResourceClaim or a template of one.
func validateResourceClaims(claims []corev1.PodResourceClaim, path *field.Path) field.ErrorList {
	errs := validate.NoDuplicates(claims, path, func(c corev1.PodResourceClaim) string { return c.Name }, "name")
	return append(errs, validate.Each(claims, path, func(c *corev1.PodResourceClaim, at *field.Path) field.ErrorList {
		errs := validate.RequiredLabel(c.Name, at.Child("name"))
		switch {
		case c.ResourceClaimName != nil && c.ResourceClaimTemplateName != nil:
			errs = append(errs, field.Invalid(at, *c, "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"))
		case c.ResourceClaimName == nil && c.ResourceClaimTemplateName == nil:
			errs = append(errs, field.Invalid(at, *c, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"))
		}
		return slices.Concat(errs, subdomainPtr(c.ResourceClaimName, at.Child("resourceClaimName")),
			subdomainPtr(c.ResourceClaimTemplateName, at.Child("resourceClaimTemplateName")))
	})...)
}

func subdomainPtr(name *string, at *field.Path) field.ErrorList {
	if name == nil {
		return nil
	}
	return validate.FromMessages(*name, at, validation.IsDNS1123Subdomain(*name))
}

// resourceClaimNames returns the names by which containers refer to a pod's claims.
func resourceClaimNames(spec *corev1.PodSpec) []string {
	var names []string
	for _, c := range spec.ResourceClaims {
		if c.Name != "" {
			names = append(names, c.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// validateClaimReferences checks the claims that a container uses: all devices of a claim, or the devices of one of its
// requests, without duplicates.
func validateClaimReferences(references []corev1.ResourceClaim, names []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	requests := map[string][]string{} // by claim; "" stands for the whole claim
	for i, r := range references {
		at := path.Index(i)
		if r.Name == "" {
			errs = append(errs, field.Required(at, ""))
			continue
		}
		used, key := requests[r.Name], r.Name
		if r.Request != "" && !slices.Contains(used, "") {
			errs = append(errs, validate.OptionalLabel(r.Request, at.Child("request"))...)
			key += "/" + r.Request
		}
		if slices.Contains(used, "") || slices.Contains(used, r.Request) || (r.Request == "" && len(used) > 0) {
			errs = append(errs, field.Duplicate(at, key))
		}
		requests[r.Name] = append(used, r.Request)
		if !slices.Contains(names, r.Name) {
			unknown := field.NotFound(at, r.Name)
			unknown.Detail = "must be one of the names in pod.spec.resourceClaims"
			if len(names) == 0 {
				unknown.Detail += " which is empty"
			} else {
				unknown.Detail += ": " + strings.Join(names, ", ")
			}
			errs = append(errs, unknown)
		}
	}
	return errs
}

// ValidateResourceClaimStatuses checks the claims in a pod's status, which were created from templates.
func ValidateResourceClaimStatuses(statuses []corev1.PodResourceClaimStatus, spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	errs := validate.NoDuplicates(statuses, path, func(s corev1.PodResourceClaimStatus) string { return s.Name }, "name")
	return append(errs, validate.Each(statuses, path, func(s *corev1.PodResourceClaimStatus, at *field.Path) field.ErrorList {
		var errs field.ErrorList
		if !slices.ContainsFunc(spec.ResourceClaims, func(c corev1.PodResourceClaim) bool { return c.Name == s.Name }) {
			errs = append(errs, field.Invalid(at.Child("name"), s.Name, "must match the name of an entry in `spec.resourceClaims`"))
		}
		return append(errs, subdomainPtr(s.ResourceClaimName, at.Child("resourceClaimName"))...)
	})...)
}

// ValidateExtendedClaimStatus checks the claim that was created for a pod's extended resources. It maps the claim's
// requests to the resources of containers.
func ValidateExtendedClaimStatus(s *corev1.PodExtendedResourceClaimStatus, spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	if s == nil {
		return nil
	}
	errs := validate.Required(s.ResourceClaimName, path.Child("resourceClaimName"))
	errs = append(errs, validate.OptionalSubdomain(s.ResourceClaimName, path.Child("resourceClaimName"))...)
	mappings := path.Child("requestMappings")
	if len(s.RequestMappings) == 0 {
		errs = append(errs, field.Required(mappings, "at least one request mapping is required"))
	}
	containers := slices.Concat(spec.InitContainers, spec.Containers)
	seen := map[corev1.ContainerExtendedResourceRequest]bool{}
	for i, m := range s.RequestMappings {
		at := mappings.Index(i)
		switch c := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == m.ContainerName }); {
		case c < 0:
			errs = append(errs, field.Invalid(at.Child("containerName"), m.ContainerName, "must match the name of an entry in spec.initContainers.name or spec.containers.name"))
		default:
			if _, requested := containers[c].Resources.Requests[corev1.ResourceName(m.ResourceName)]; !requested {
				errs = append(errs, field.Invalid(at.Child("resourceName"), m.ResourceName, "must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests"))
			}
		}
		// Kubernetes reports the name of a request for the status, not for the mapping.
		errs = append(errs, validate.FromMessages(m.RequestName, path.Child("requestName"), validation.IsDNS1123Label(m.RequestName))...)
		if seen[m] {
			errs = append(errs, field.Duplicate(at.Child("containerName"), m.ContainerName), field.Duplicate(at.Child("resourceName"), m.ResourceName),
				field.Duplicate(at.Child("requestName"), m.RequestName))
		}
		seen[m] = true
	}
	return errs
}
