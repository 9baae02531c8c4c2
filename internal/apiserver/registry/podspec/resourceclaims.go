package podspec

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// validateResourceClaims checks the resource claims of a pod.
func validateResourceClaims(claims []corev1.PodResourceClaim, path *field.Path) field.ErrorList {
	errs := validate.NoDuplicates(claims, path, func(c corev1.PodResourceClaim) string { return c.Name }, "name")
	return append(errs, validate.Each(claims, path, func(c *corev1.PodResourceClaim, at *field.Path) field.ErrorList {
		errs := validate.RequiredLabel(c.Name, at.Child("name"))
		switch {
		case c.ResourceClaimName != nil && c.ResourceClaimTemplateName != nil:
			errs = append(errs, field.Invalid(at, c, "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"))
		case c.ResourceClaimName == nil && c.ResourceClaimTemplateName == nil:
			errs = append(errs, field.Invalid(at, c, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"))
		}
		for name, value := range map[string]*string{"resourceClaimName": c.ResourceClaimName, "resourceClaimTemplateName": c.ResourceClaimTemplateName} {
			if value != nil {
				errs = append(errs, validate.FromMessages(*value, at.Child(name), validation.IsDNS1123Subdomain(*value))...)
			}
		}
		return errs
	})...)
}

// checkClaims checks which of the pod's resource claims a container uses.
func (c containerChecks) checkClaims(claims []corev1.ResourceClaim, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	var known []string
	for _, claim := range c.spec.ResourceClaims {
		known = append(known, claim.Name)
	}
	slices.Sort(known)
	seen := map[string]bool{}
	for i, claim := range claims {
		at := path.Index(i)
		if claim.Name == "" {
			errs = append(errs, field.Required(at, ""))
			continue
		}
		key := claim.Name
		if claim.Request != "" {
			errs = append(errs, validate.FromMessages(claim.Request, at.Child("request"), validation.IsDNS1123Label(claim.Request))...)
			key += "/" + claim.Request
		}
		if seen[key] || seen[claim.Name] {
			errs = append(errs, field.Duplicate(at, key))
		}
		seen[key] = true
		if !slices.Contains(known, claim.Name) {
			missing := field.NotFound(at, claim.Name)
			missing.Detail = "must be one of the names in pod.spec.resourceClaims"
			if len(known) == 0 {
				missing.Detail += " which is empty"
			} else {
				missing.Detail += ": " + strings.Join(known, ", ")
			}
			errs = append(errs, missing)
		}
	}
	return errs
}
