package deletion

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// firstFinalizers returns the finalizers after the DELETE that begins a deletion (R17):
// according to the options, else to the object's finalizers, else to the default of its
// kind.
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

// laterFinalizers returns the finalizers after a DELETE of an object that is already
// being deleted. Finalizers can now only be removed (R19): a request for another policy
// removes the collector's finalizer and does not replace it. Upstream adds the other one,
// even if the collector has already done that work and removed it for good.
//
// Background instead of foreground or orphan hastens the removal, as requested.
// Foreground instead of orphan deletes the dependents, as requested, but without waiting
// for them. Orphan instead of anything else cannot be honoured, and a client that
// believed it was would lose the dependents: it is refused, like an update that adds a
// finalizer.
func (r request) laterFinalizers() ([]string, error) {
	current := r.object.GetFinalizers()
	if r.strategy.RepeatedReplaces {
		return r.replacedFinalizers(), nil
	}
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

// replacedFinalizers returns the finalizers after a repeated DELETE on kube-apiserver: the same as after
// a first DELETE. If the object has grace left that the DELETE does not shorten, or another reason to
// stay, they do not change.
func (r request) replacedFinalizers() []string {
	requested, stored := r.requestedGrace(), r.storedGrace()
	isInGrace := stored > 0 && (requested == nil || *requested >= stored)
	if isInGrace || r.strategy.Pending != nil && r.strategy.Pending(r.obj) {
		return r.object.GetFinalizers()
	}
	return r.firstFinalizers()
}

// requestedPolicy returns the policy that the options request; empty if they request none.
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

// policyPath returns the path of the option that requestedPolicy reads.
func (r request) policyPath() *field.Path {
	if r.options.PropagationPolicy != nil {
		return field.NewPath("propagationPolicy")
	}
	return field.NewPath("orphanDependents")
}

// policyOf returns the policy that a list of finalizers stands for; empty if it has none
// of the collector's. Validation prevents an object from having both; if it has both
// nevertheless, orphan wins, as it destroys less (TR-04).
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

// finalizerOf returns the collector's finalizer for a policy; Background needs none.
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

// keepOnly removes the collector's finalizers from a list, except the wanted one.
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
