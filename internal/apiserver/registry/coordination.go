package registry

import (
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func coordinationKinds() []Kind { return []Kind{leases()} }

func leases() Kind {
	return define[coordinationv1.Lease, coordinationv1.LeaseList](Kind{
		GroupVersion:   coordinationv1.SchemeGroupVersion,
		Kind:           "Lease",
		Resource:       "leases",
		Why:            "Heartbeats of nodes, by which a node counts as not ready, and the election of one collector among several.",
		Namespaced:     true,
		Name:           apivalidation.NameIsDNSSubdomain,
		CreateOnUpdate: true,
	}, []column{
		text("Holder", "Who holds the lease.", func(l *coordinationv1.Lease) string { return deref(l.Spec.HolderIdentity, "") }),
		ageColumn(),
	}, behaviour[*coordinationv1.Lease]{
		validate: func(l *coordinationv1.Lease) field.ErrorList {
			// A holder that lets go leaves an empty holderIdentity behind.
			spec := field.NewPath("spec")
			return slices.Concat(
				positive(l.Spec.LeaseDurationSeconds, spec.Child("leaseDurationSeconds")),
				notNegative(l.Spec.LeaseTransitions, spec.Child("leaseTransitions")),
			)
		},
	})
}
