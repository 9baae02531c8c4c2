package resource

import (
	"context"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/podspec"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// resourceClaims are claims on devices. A scheduler allocates devices to a claim and reserves it
// for pods, in its status.
func resourceClaims() registry.Resource {
	return registry.Define[resourcev1.ResourceClaim, resourcev1.ResourceClaimList](registry.Resource{
		GroupVersion:        resourcev1.SchemeGroupVersion,
		Kind:                "ResourceClaim",
		Plural:              "resourceclaims",
		Namespaced:          true,
		ValidateName:        apivalidation.NameIsDNSSubdomain,
		UnconditionalUpdate: true,
		ReturnDeletedObject: true,
	}, []table.Column{
		table.Text("State", "Summary of the state of the claim.", claimState),
		table.Age(),
	}, registry.Strategy[*resourcev1.ResourceClaim]{
		Default: func(c *resourcev1.ResourceClaim) {
			defaultClaim(&c.Spec)
			if c.Status.Allocation != nil {
				for i := range c.Status.Allocation.Devices.Results {
					defaultTolerations(c.Status.Allocation.Devices.Results[i].Tolerations)
				}
			}
		},
		ValidateWith: func(ctx context.Context, rs registry.Registries, c, old *resourcev1.ResourceClaim) field.ErrorList {
			switch {
			case old == nil:
				return allowAdminAccess(ctx, rs, adminRequested(&c.Spec.Devices))
			case adminAllocated(old) == nil: // an allocation does not change
				return allowAdminAccess(ctx, rs, adminAllocated(c))
			}
			return nil
		},
		PrepareForCreate: func(c *resourcev1.ResourceClaim) { dropClaimFields(&c.Spec) },
		PrepareForUpdate: func(c, _ *resourcev1.ResourceClaim) { dropClaimFields(&c.Spec) },
		// A changed spec is reported as immutable. It needs no other validation.
		ValidateIn: func(_ schema.GroupVersion, c, old *resourcev1.ResourceClaim) field.ErrorList {
			if old != nil {
				return nil
			}
			return validateClaim(&c.Spec.Devices, field.NewPath("spec", "devices"))
		},
		ValidateUpdate: func(c, old *resourcev1.ResourceClaim) field.ErrorList {
			return validate.ImmutableUnnamed(c.Spec, old.Spec, field.NewPath("spec"))
		},
		CopyStatus:             registry.CopyField(func(c *resourcev1.ResourceClaim) *resourcev1.ResourceClaimStatus { return &c.Status }),
		PrepareForStatusUpdate: prepareClaimStatus,
		ValidateStatusUpdate:   validateClaimStatus,
	})
}

// resourceClaimTemplates are the templates of the claims of pods.
func resourceClaimTemplates() registry.Resource {
	return registry.Define[resourcev1.ResourceClaimTemplate, resourcev1.ResourceClaimTemplateList](registry.Resource{
		GroupVersion:        resourcev1.SchemeGroupVersion,
		Kind:                "ResourceClaimTemplate",
		Plural:              "resourceclaimtemplates",
		Namespaced:          true,
		ValidateName:        apivalidation.NameIsDNSSubdomain,
		UnconditionalUpdate: true,
		ReturnDeletedObject: true,
	}, []table.Column{table.Age()}, registry.Strategy[*resourcev1.ResourceClaimTemplate]{
		Default: func(t *resourcev1.ResourceClaimTemplate) { defaultClaim(&t.Spec.Spec) },
		ValidateWith: func(ctx context.Context, rs registry.Registries, t, old *resourcev1.ResourceClaimTemplate) field.ErrorList {
			if old != nil { // the spec does not change
				return nil
			}
			return allowAdminAccess(ctx, rs, adminRequested(&t.Spec.Spec.Devices))
		},
		PrepareForCreate: func(t *resourcev1.ResourceClaimTemplate) { dropClaimFields(&t.Spec.Spec) },
		PrepareForUpdate: func(t, _ *resourcev1.ResourceClaimTemplate) { dropClaimFields(&t.Spec.Spec) },
		Validate: func(t *resourcev1.ResourceClaimTemplate) field.ErrorList {
			spec := field.NewPath("spec")
			return append(
				podspec.ValidateClaimTemplateMeta(&t.Spec.ObjectMeta, spec.Child("metadata")),
				validateClaim(&t.Spec.Spec.Devices, spec.Child("spec", "devices"))...)
		},
		ValidateUpdate: func(t, old *resourcev1.ResourceClaimTemplate) field.ErrorList {
			return validate.Immutable(t.Spec, old.Spec, field.NewPath("spec"))
		},
	})
}

// claimState returns the state of a claim in words.
func claimState(c *resourcev1.ResourceClaim) string {
	var words []string
	if c.DeletionTimestamp != nil {
		words = append(words, "deleted")
	}
	switch {
	case c.Status.Allocation != nil && len(c.Status.ReservedFor) > 0:
		words = append(words, "allocated", "reserved")
	case c.Status.Allocation != nil:
		words = append(words, "allocated")
	case c.DeletionTimestamp == nil:
		words = append(words, "pending")
	}
	return strings.Join(words, ",")
}

// defaultClaim sets the defaults of requests, one device each, and of tolerations.
func defaultClaim(spec *resourcev1.ResourceClaimSpec) {
	for i := range spec.Devices.Requests {
		request := &spec.Devices.Requests[i]
		if request.Exactly != nil {
			defaultCount(&request.Exactly.AllocationMode, &request.Exactly.Count)
			defaultTolerations(request.Exactly.Tolerations)
		}
		for j := range request.FirstAvailable {
			defaultCount(&request.FirstAvailable[j].AllocationMode, &request.FirstAvailable[j].Count)
			defaultTolerations(request.FirstAvailable[j].Tolerations)
		}
	}
}

func defaultTolerations(tolerations []resourcev1.DeviceToleration) {
	for i := range tolerations {
		registry.SetDefault(&tolerations[i].Operator, resourcev1.DeviceTolerationOpEqual)
	}
}

func defaultCount(mode *resourcev1.DeviceAllocationMode, count *int64) {
	registry.SetDefault(mode, resourcev1.DeviceAllocationModeExactCount)
	if *mode == resourcev1.DeviceAllocationModeExactCount {
		registry.SetDefault(count, 1)
	}
}

// dropClaimFields drops the fields of feature gates that Kubernetes disables by default.
func dropClaimFields(spec *resourcev1.ResourceClaimSpec) {
	// The array may be shared with the object that was sent.
	spec.Devices.Requests = slices.Clone(spec.Devices.Requests)
	for i := range spec.Devices.Requests {
		request := &spec.Devices.Requests[i]
		if request.Exactly != nil && request.Exactly.DerivedAttributes != nil {
			exactly := *request.Exactly
			exactly.DerivedAttributes = nil
			request.Exactly = &exactly
		}
		request.FirstAvailable = slices.Clone(request.FirstAvailable)
		for j := range request.FirstAvailable {
			request.FirstAvailable[j].DerivedAttributes = nil
		}
	}
}
