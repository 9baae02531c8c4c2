package statefulset

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// retention determines when a volume claim is deleted: with the set, with a pod that is no
// longer desired, or with neither.
type retention struct{ WithSet, WithPod bool }

// retentionOf returns the policy for the volume claims of a pod.
func retentionOf(set *appsv1.StatefulSet, condemned bool) retention {
	policy := set.Spec.PersistentVolumeClaimRetentionPolicy
	if policy == nil {
		return retention{}
	}
	const remove = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	withPod := condemned && policy.WhenScaled == remove
	return retention{WithPod: withPod, WithSet: policy.WhenDeleted == remove && !withPod}
}

// claimOwners returns the desired owner references of a volume claim, and whether they differ
// from the current ones. References to the set and to the pod are replaced, others stay. A
// volume claim that another object controls is left unchanged.
func claimOwners(claim *corev1.PersistentVolumeClaim, set, pod *metav1.OwnerReference, policy retention) ([]metav1.OwnerReference, bool) {
	if c := metav1.GetControllerOfNoCopy(claim); c != nil && !names(c, set) && !names(c, pod) {
		return claim.OwnerReferences, false
	}
	wanted := slices.DeleteFunc(slices.Clone(claim.OwnerReferences), func(r metav1.OwnerReference) bool {
		return names(&r, set) || names(&r, pod)
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

// names reports whether a reference names that owner or an earlier one of the same name.
func names(ref, owner *metav1.OwnerReference) bool {
	return ref.Kind == owner.Kind && ref.APIVersion == owner.APIVersion && ref.Name == owner.Name
}

// isStale reports whether a volume claim is about to disappear: it is being deleted, or will be
// collected with an earlier pod of that name. The next pod gets a new one.
func isStale(claim *corev1.PersistentVolumeClaim, pod string) bool {
	return claim.DeletionTimestamp != nil || slices.ContainsFunc(claim.OwnerReferences, func(r metav1.OwnerReference) bool {
		return r.Kind == "Pod" && r.APIVersion == "v1" && r.Name == pod
	})
}
