package builtin

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// coordinationGroup returns the API group coordination.k8s.io/v1: Leases.
func coordinationGroup() registry.Group {
	return registry.Group{
		GroupVersion: coordinationv1.SchemeGroupVersion,
		AddToScheme:  coordinationv1.AddToScheme,
		Resources:    []registry.Resource{leases()},
	}
}

func leases() registry.Resource {
	return registry.Define[coordinationv1.Lease, coordinationv1.LeaseList](registry.Resource{
		GroupVersion:   coordinationv1.SchemeGroupVersion,
		Kind:           "Lease",
		Plural:         "leases",
		Namespaced:     true,
		ValidateName:   apivalidation.NameIsDNSSubdomain,
		AnyFinalizer:   true,
		CreateOnUpdate: true,
	}, []table.Column{
		table.Text("Holder", "Identity of the holder.", func(l *coordinationv1.Lease) string { return ptr.Deref(l.Spec.HolderIdentity, "") }),
		table.Age(),
	}, registry.Strategy[*coordinationv1.Lease]{
		// The feature gate for coordinated leader election is off by default.
		PrepareForCreate: func(l *coordinationv1.Lease) { l.Spec.Strategy, l.Spec.PreferredHolder = nil, nil },
		PrepareForUpdate: func(l, _ *coordinationv1.Lease) { l.Spec.Strategy, l.Spec.PreferredHolder = nil, nil },
		Validate: func(l *coordinationv1.Lease) field.ErrorList {
			// A holder that gives up the lease leaves an empty holderIdentity.
			spec := field.NewPath("spec")
			errs := validate.NotNegative(l.Spec.LeaseTransitions, spec.Child("leaseTransitions"))
			if seconds := l.Spec.LeaseDurationSeconds; seconds != nil && *seconds <= 0 {
				errs = append(errs, field.Invalid(spec.Child("leaseDurationSeconds"), *seconds, "must be greater than 0"))
			}
			return errs
		},
	})
}
