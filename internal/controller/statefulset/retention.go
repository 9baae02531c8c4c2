package statefulset

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Retention says with what a claim is deleted: with the set, with a pod that is one too
// many, with neither.
type Retention struct{ WithSet, WithPod bool }

// retentionOf is the policy for the claims of a pod.
func retentionOf(set *appsv1.StatefulSet, condemned bool) Retention {
	policy := set.Spec.PersistentVolumeClaimRetentionPolicy
	if policy == nil {
		return Retention{}
	}
	const remove = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	withPod := condemned && policy.WhenScaled == remove
	return Retention{WithPod: withPod, WithSet: policy.WhenDeleted == remove && !withPod}
}

// Owners are the owner references that a claim is to have, and whether they are others
// than it has. References to set and to pod are replaced, those to others stay. A claim
// that somebody else controls is left as it is.
func Owners(claim *corev1.PersistentVolumeClaim, set, pod *metav1.OwnerReference, policy Retention) ([]metav1.OwnerReference, bool) {
	if c := metav1.GetControllerOfNoCopy(claim); c != nil && !isThe(c, set) && !isThe(c, pod) {
		return claim.OwnerReferences, false
	}
	wanted := slices.DeleteFunc(slices.Clone(claim.OwnerReferences), func(r metav1.OwnerReference) bool {
		return isThe(&r, set) || isThe(&r, pod)
	})
	if policy.WithSet {
		wanted = append(wanted, *set)
	}
	if policy.WithPod {
		wanted = append(wanted, *pod)
	}
	changed := len(wanted) != len(claim.OwnerReferences)
	for _, w := range wanted {
		changed = changed || !slices.ContainsFunc(claim.OwnerReferences, func(r metav1.OwnerReference) bool { return equality.Semantic.DeepEqual(r, w) })
	}
	return wanted, changed
}

// isThe tells whether a reference names the same owner, or an earlier one of its name.
func isThe(ref, owner *metav1.OwnerReference) bool {
	return ref.Kind == owner.Kind && ref.APIVersion == owner.APIVersion && ref.Name == owner.Name
}

// isStale tells whether a claim is about to go: it is being deleted, or is to be deleted
// with an earlier pod of that name. The next pod gets another one.
func isStale(claim *corev1.PersistentVolumeClaim, pod string) bool {
	return claim.DeletionTimestamp != nil || slices.ContainsFunc(claim.OwnerReferences, func(r metav1.OwnerReference) bool {
		return r.Kind == "Pod" && r.APIVersion == "v1" && r.Name == pod
	})
}
