package podspec

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// validateResourceClaims checks a pod's claims on devices: each names a ResourceClaim or a template of one.
func validateResourceClaims(claims []corev1.PodResourceClaim, path *field.Path) field.ErrorList {
	named := map[string]bool{}
	return validate.Each(claims, path, func(c *corev1.PodResourceClaim, at *field.Path) field.ErrorList {
		var errs field.ErrorList
		if named[c.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		} else {
			errs = append(errs, validate.RequiredLabel(c.Name, at.Child("name"))...)
			named[c.Name] = c.Name != ""
		}
		switch {
		case c.ResourceClaimName != nil && c.ResourceClaimTemplateName != nil:
			errs = append(errs, field.Invalid(at, *c, "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"))
		case c.ResourceClaimName == nil && c.ResourceClaimTemplateName == nil:
			errs = append(errs, field.Invalid(at, *c, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"))
		}
		return slices.Concat(errs, subdomainPtr(c.ResourceClaimName, at.Child("resourceClaimName")),
			subdomainPtr(c.ResourceClaimTemplateName, at.Child("resourceClaimTemplateName")))
	})
}

func subdomainPtr(name *string, at *field.Path) field.ErrorList {
	if name == nil {
		return nil
	}
	return validate.FromMessages(*name, at, validation.IsDNS1123Subdomain(*name))
}

// claimNames has the names by which containers refer to a pod's claims.
type claimNames struct {
	known sets.Set[string]
	// others is the detail of the error about any other name. All errors share the text: a pod can have as many claims
	// as wrong references, and claims with names of any length, which are invalid.
	others string
}

// claimNamesOf returns the names of a pod's claims.
func claimNamesOf(spec *corev1.PodSpec) claimNames {
	const shown, longest = 10, 253
	names := claimNames{known: sets.New[string](), others: "must be one of the names in pod.spec.resourceClaims"}
	for i := range spec.ResourceClaims {
		names.known.Insert(spec.ResourceClaims[i].Name)
	}
	names.known.Delete("")
	sorted := sets.List(names.known)
	if len(sorted) == 0 {
		names.others += " which is empty"
		return names
	}
	first := slices.Clone(sorted[:min(len(sorted), shown)])
	for i, name := range first {
		first[i] = validate.Shortened(name, longest)
	}
	names.others += ": " + strings.Join(first, ", ")
	if len(sorted) > shown {
		names.others += fmt.Sprintf(", and %d others", len(sorted)-shown)
	}
	return names
}

// validateClaimReferences checks the claims that a container uses: all devices of a claim, or the devices of one of its
// requests, without duplicates.
func validateClaimReferences(references []corev1.ResourceClaim, names claimNames, path *field.Path) field.ErrorList {
	used := map[corev1.ResourceClaim]bool{} // without a request: the whole claim
	partly := map[string]bool{}             // the claims in used
	return validate.Each(references, path, func(r *corev1.ResourceClaim, at *field.Path) field.ErrorList {
		if r.Name == "" {
			return field.ErrorList{field.Required(at, "")}
		}
		var errs field.ErrorList
		key, whole := r.Name, used[corev1.ResourceClaim{Name: r.Name}]
		if r.Request != "" && !whole {
			errs = validate.OptionalLabel(r.Request, at.Child("request"))
			key += "/" + r.Request
		}
		if whole || used[*r] || r.Request == "" && partly[r.Name] {
			errs = append(errs, field.Duplicate(at, key))
		}
		used[*r], partly[r.Name] = true, true
		if !names.known.Has(r.Name) {
			unknown := field.NotFound(at, r.Name)
			unknown.Detail = names.others
			errs = append(errs, unknown)
		}
		return errs
	})
}

// ValidateResourceClaimStatuses checks the claims in a pod's status, which were created from templates.
func ValidateResourceClaimStatuses(statuses []corev1.PodResourceClaimStatus, spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	errs := validate.DistinctNames(statuses, path, func(s corev1.PodResourceClaimStatus) string { return s.Name }, "name")
	claims := map[string]bool{}
	for i := range spec.ResourceClaims {
		claims[spec.ResourceClaims[i].Name] = true
	}
	return append(errs, validate.Each(statuses, path, func(s *corev1.PodResourceClaimStatus, at *field.Path) field.ErrorList {
		var errs field.ErrorList
		if !claims[s.Name] {
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
	requests := map[string]corev1.ResourceList{}
	for _, list := range [][]corev1.Container{spec.Containers, spec.InitContainers} {
		for i := range slices.Backward(list) { // of several with one name, the first init container counts
			requests[list[i].Name] = list[i].Resources.Requests
		}
	}
	seen := map[corev1.ContainerExtendedResourceRequest]bool{}
	for i, m := range s.RequestMappings {
		at := mappings.Index(i)
		switch list, found := requests[m.ContainerName]; {
		case !found:
			errs = append(errs, field.Invalid(at.Child("containerName"), m.ContainerName, "must match the name of an entry in spec.initContainers.name or spec.containers.name"))
		default:
			if _, requested := list[corev1.ResourceName(m.ResourceName)]; !requested {
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
