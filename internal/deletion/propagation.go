package deletion

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// firstFinalizers is the list of finalizers for the DELETE that begins a
// deletion (R17): what the options say, else what the object says, else what
// its kind says.
func (r request) firstFinalizers() []string {
	current := r.object.GetFinalizers()
	if r.strategy.CollectorDisabled {
		return current
	}
	policy := cmp.Or(r.requestedPolicy(), policyOf(current), r.strategy.DefaultPropagation)
	wanted := finalizerOf(policy)
	finalizers := keepOnly(current, wanted)
	if wanted != "" && !slices.Contains(finalizers, wanted) {
		finalizers = append(finalizers, wanted)
	}
	return finalizers
}

// laterFinalizers is the list of finalizers for a DELETE of an object that is
// being deleted already. Finalizers can only be removed now (R19): a request
// for another policy takes away the collector's finalizer and puts none in its
// place. Upstream adds the other one, also when the collector has done that
// work and removed it for good.
//
// Background instead of foreground or orphan hastens the end, as asked.
// Foreground instead of orphan loses the waiting, and does delete the
// dependents, as asked. Orphan instead of anything else cannot be honoured, and
// a client that believes it was loses the dependents: it is refused, like the
// update that adds a finalizer.
func (r request) laterFinalizers() ([]string, error) {
	current := r.object.GetFinalizers()
	requested := r.requestedPolicy()
	if requested == "" || r.strategy.CollectorDisabled {
		return current, nil
	}
	if requested == metav1.DeletePropagationOrphan && policyOf(current) != requested {
		return nil, invalid(field.ErrorList{field.Forbidden(r.policyPath(),
			"the object is already being deleted with another policy, so that its dependents can no longer be orphaned;"+
				" to keep them, remove its owner reference from each of them")})
	}
	return keepOnly(current, finalizerOf(requested)), nil
}

// requestedPolicy is the policy that the options ask for; empty when they say nothing.
func (r request) requestedPolicy() metav1.DeletionPropagation {
	if policy := r.options.PropagationPolicy; policy != nil {
		return *policy
	}
	orphan := r.options.OrphanDependents // deprecated, and still sent by clients
	switch {
	case orphan == nil:
		return ""
	case *orphan:
		return metav1.DeletePropagationOrphan
	default:
		return cmp.Or(r.strategy.OrphanDependentsFalse, metav1.DeletePropagationBackground)
	}
}

// policyPath is the option that requestedPolicy was read from.
func (r request) policyPath() *field.Path {
	if r.options.PropagationPolicy != nil {
		return field.NewPath("propagationPolicy")
	}
	return field.NewPath("orphanDependents")
}

// policyOf is the policy that a list of finalizers stands for; empty when the
// collector has none in it. Validation keeps both out of one object; where both
// stand nevertheless, orphan wins, as it destroys less (TR-04).
func policyOf(finalizers []string) metav1.DeletionPropagation {
	switch {
	case slices.Contains(finalizers, metav1.FinalizerOrphanDependents):
		return metav1.DeletePropagationOrphan
	case slices.Contains(finalizers, metav1.FinalizerDeleteDependents):
		return metav1.DeletePropagationForeground
	default:
		return ""
	}
}

// finalizerOf is the collector's finalizer for a policy; Background needs none.
func finalizerOf(policy metav1.DeletionPropagation) string {
	switch policy {
	case metav1.DeletePropagationOrphan:
		return metav1.FinalizerOrphanDependents
	case metav1.DeletePropagationForeground:
		return metav1.FinalizerDeleteDependents
	case metav1.DeletePropagationBackground:
	}
	return ""
}

// keepOnly takes the collector's finalizers out of a list, except the wanted one.
func keepOnly(finalizers []string, wanted string) []string {
	var kept []string
	for _, f := range finalizers {
		ours := f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
		if !ours || f == wanted {
			kept = append(kept, f)
		}
	}
	return kept
}
