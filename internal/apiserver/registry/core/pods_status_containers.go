package core

import (
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// validateContainerStatuses checks the statuses that a node reports for the containers of a pod. It ignores statuses of
// containers that the pod does not have.
func validateContainerStatuses(p *corev1.Pod, path *field.Path) field.ErrorList {
	windows := p.Spec.OS != nil && p.Spec.OS.Name == corev1.Windows
	user := func(s *corev1.ContainerStatus, at *field.Path) field.ErrorList {
		return validateContainerUser(s.User, windows, at.Child("user", "linux"))
	}
	devices := func(containers []corev1.Container) func(*corev1.ContainerStatus, *field.Path) field.ErrorList {
		named := byName(containers)
		claims := claimsOf(named, p.Status.ExtendedResourceClaimStatus)
		return func(s *corev1.ContainerStatus, at *field.Path) field.ErrorList {
			container := named[s.Name]
			return validate.Each(s.AllocatedResourcesStatus, at.Child("allocatedResourcesStatus"), func(r *corev1.ResourceStatus, at *field.Path) field.ErrorList {
				var errs field.ErrorList
				if container != nil {
					errs = validateAllocated(r.Name, container, claims[s.Name], at.Child("name"))
				}
				return append(errs, validateHealth(r.Resources, at.Child("resources"))...)
			})
		}
	}
	none := func(s *corev1.ContainerStatus, at *field.Path) field.ErrorList {
		if len(s.AllocatedResourcesStatus) == 0 {
			return nil
		}
		return field.ErrorList{field.Forbidden(at.Child("allocatedResourcesStatus"), "must not be specified in container status")}
	}
	s := &p.Status
	return slices.Concat(
		validate.Each(s.ContainerStatuses, path.Child("containerStatuses"), user),
		validate.Each(s.ContainerStatuses, path.Child("containerStatuses"), devices(p.Spec.Containers)),
		validate.Each(s.InitContainerStatuses, path.Child("initContainerStatuses"), user),
		validate.Each(s.InitContainerStatuses, path.Child("initContainerStatuses"), devices(p.Spec.InitContainers)),
		validate.Each(s.EphemeralContainerStatuses, path.Child("ephemeralContainerStatuses"), user),
		validate.Each(s.EphemeralContainerStatuses, path.Child("ephemeralContainerStatuses"), none),
	)
}

// validateContainerUser checks the user that runs a container.
func validateContainerUser(user *corev1.ContainerUser, windows bool, at *field.Path) field.ErrorList {
	switch {
	case user == nil || user.Linux == nil:
		return nil
	case windows:
		return field.ErrorList{field.Forbidden(at, "cannot be set for a windows pod")}
	}
	errs := append(
		validate.InRange(user.Linux.UID, at.Child("uid"), 0, math.MaxUint32), // runtimes report what the image says
		validate.FromMessages(user.Linux.GID, at.Child("gid"), validation.IsValidGroupID(user.Linux.GID))...)
	return append(errs, validate.Each(user.Linux.SupplementalGroups, at.Child("supplementalGroups"), func(id *int64, at *field.Path) field.ErrorList {
		return validate.FromMessages(*id, at, validation.IsValidGroupID(*id))
	})...)
}

// deviceClaims are the claims on devices that a container has, or that the scheduler has made for its requests. There may be tens of
// thousands, and as many devices that name one; the name of a claim that is not valid may be as long as the request.
type deviceClaims struct {
	own      map[string]bool // the paths of the container's claims
	extended string          // the beginning of the paths of the scheduler's claim
	requests map[string]bool // the requests of that claim
}

// has reports whether one of the claims has a path.
func (c deviceClaims) has(path string) bool {
	request, isExtended := strings.CutPrefix(path, c.extended)
	return c.own[path] || isExtended && c.requests[request]
}

// claimsOf returns the claims of each container.
func claimsOf(containers map[string]*corev1.Container, extended *corev1.PodExtendedResourceClaimStatus) map[string]deviceClaims {
	claims := map[string]deviceClaims{}
	for name, c := range containers {
		own := map[string]bool{}
		for _, r := range c.Resources.Claims {
			own[pathOfClaim(r.Name, r.Request)] = true
		}
		claims[name] = deviceClaims{own: own, requests: map[string]bool{}}
	}
	if extended == nil {
		return claims
	}
	path := extended.ResourceClaimName + "/"
	for name, c := range claims {
		c.extended = path
		claims[name] = c
	}
	for _, m := range extended.RequestMappings {
		c := containers[m.ContainerName]
		if c == nil || m.RequestName == "" {
			continue
		}
		if amount := c.Resources.Requests[corev1.ResourceName(m.ResourceName)]; !amount.IsZero() {
			claims[m.ContainerName].requests[m.RequestName] = true
		}
	}
	return claims
}

// validateAllocated checks that a container requests a resource, or has one of the claims.
func validateAllocated(name corev1.ResourceName, c *corev1.Container, claims deviceClaims, at *field.Path) field.ErrorList {
	claimed, isClaim := strings.CutPrefix(string(name), "claim:")
	_, requested := c.Resources.Requests[name]
	switch {
	case !isClaim && !requested:
		return field.ErrorList{field.Invalid(at, name, "must match one of the container's resource requests")}
	case !isClaim || claims.has(claimed):
		return nil
	}
	return field.ErrorList{field.Invalid(at, name, "must match one of the container's resource claims as 'claim:<claimName>/<requestName>' "+
		"when container.resources.claims[*].request is set or 'claim:<claimName>' when it is empty")}
}

// pathOfClaim returns the name of a claim, and of the request that a container uses of it; none: the whole claim.
func pathOfClaim(claim, request string) string {
	if request == "" {
		return claim
	}
	return claim + "/" + request
}

// validateHealth checks the health of devices.
func validateHealth(devices []corev1.ResourceHealth, path *field.Path) field.ErrorList {
	seen := map[corev1.ResourceID]bool{}
	return validate.Each(devices, path, func(d *corev1.ResourceHealth, at *field.Path) field.ErrorList {
		errs := validate.OneOfPtr(&d.Health, at.Child("health"), corev1.ResourceHealthStatusHealthy, corev1.ResourceHealthStatusUnhealthy, corev1.ResourceHealthStatusUnknown)
		switch message := d.Message; {
		case message == nil:
		case *message == "":
			errs = append(errs, field.Required(at.Child("message"), "must be non-empty if specified"))
		case len(*message) > corev1.ResourceHealthMessageMaxLength:
			errs = append(errs, field.TooLong(at.Child("message"), *message, corev1.ResourceHealthMessageMaxLength))
		}
		if seen[d.ResourceID] {
			errs = append(errs, field.Duplicate(at.Child("resourceID"), d.ResourceID))
		}
		seen[d.ResourceID] = true
		return errs
	})
}
