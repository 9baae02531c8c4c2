// Package inuse has the rule that objects in use stay (R23): which finalizer keeps a PersistentVolumeClaim, a
// PersistentVolume, a VolumeAttributesClass or a ServiceCIDR, and which uses keep the first three. It is pure: the
// controller of volume protection acts on its decisions, the preview plays them, and explain names the users.
package inuse

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Decision is the next step for one object: RemoveFinalizer or Keep.
//
//sumtype:decl
type Decision interface{ decision() }

type (
	// RemoveFinalizer removes the protection: nothing uses the object any more.
	RemoveFinalizer struct {
		// Finalizers are the remaining finalizers, in their original order.
		Finalizers []string
	}
	// Keep changes nothing.
	Keep struct {
		Reason string
	}
)

func (RemoveFinalizer) decision() {}
func (Keep) decision()            {}

// DecideClaim decides about a volume claim. pods are all pods of its namespace, or the cached
// pods that name it.
func DecideClaim(claim *corev1.PersistentVolumeClaim, pods []corev1.Pod) Decision {
	if !IsPending(claim, PVCProtection) {
		return Keep{Reason: "not protected, or not being deleted"}
	}
	for i := range pods {
		if Uses(&pods[i], claim) {
			return Keep{Reason: fmt.Sprintf("pod %s uses it", pods[i].Name)}
		}
	}
	return RemoveFinalizer{without(claim.Finalizers, PVCProtection)}
}

// DecideVolume decides about a volume. claim is the volume claim that its claimRef names; nil if
// that does not exist.
func DecideVolume(volume *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) Decision {
	if !IsPending(volume, PVProtection) {
		return Keep{Reason: "not protected, or not being deleted"}
	}
	if IsBound(volume, claim) {
		return Keep{Reason: fmt.Sprintf("volume claim %s/%s is bound to it", claim.Namespace, claim.Name)}
	}
	return RemoveFinalizer{without(volume.Finalizers, PVProtection)}
}

// DecideClass decides about a VolumeAttributesClass. volumes and claims are all existing ones, or
// the cached ones that name it.
func DecideClass(class *storagev1.VolumeAttributesClass, volumes []corev1.PersistentVolume, claims []corev1.PersistentVolumeClaim) Decision {
	if !IsPending(class, VACProtection) {
		return Keep{Reason: "not protected, or not being deleted"}
	}
	for i := range volumes {
		if slices.Contains(ClassesOfVolume(&volumes[i]), class.Name) {
			return Keep{Reason: fmt.Sprintf("volume %s names it", volumes[i].Name)}
		}
	}
	for i := range claims {
		if slices.Contains(ClassesOfClaim(&claims[i]), class.Name) {
			return Keep{Reason: fmt.Sprintf("volume claim %s/%s names it", claims[i].Namespace, claims[i].Name)}
		}
	}
	return RemoveFinalizer{without(class.Finalizers, VACProtection)}
}

// ClassesOfVolume returns the VolumeAttributesClass that a volume names.
func ClassesOfVolume(volume *corev1.PersistentVolume) []string {
	if name := ptr.Deref(volume.Spec.VolumeAttributesClassName, ""); name != "" {
		return []string{name}
	}
	return nil
}

// ClassesOfClaim returns the VolumeAttributesClasses that a volume claim has, is to have, or is
// getting.
func ClassesOfClaim(claim *corev1.PersistentVolumeClaim) []string {
	names := []string{ptr.Deref(claim.Spec.VolumeAttributesClassName, ""), ptr.Deref(claim.Status.CurrentVolumeAttributesClassName, "")}
	if modified := claim.Status.ModifyVolumeStatus; modified != nil {
		names = append(names, modified.TargetVolumeAttributesClassName)
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}

// IsPending reports whether an object is being deleted and has the finalizer.
func IsPending(object metav1.Object, finalizer string) bool {
	return object.GetDeletionTimestamp() != nil && slices.Contains(object.GetFinalizers(), finalizer)
}

func without(finalizers []string, finalizer string) []string {
	return slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool { return f == finalizer })
}

// Uses reports whether a pod uses a volume claim. A pod that is not bound to a node does not use
// it: a node does not start a pod whose volume claim is being deleted. A pod that has ended uses
// it for as long as the pod exists, except that the volume claim of an ephemeral volume is free
// once the node has shut the pod down.
func Uses(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) bool {
	if pod.Spec.NodeName == "" {
		return false
	}
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		switch {
		case v.PersistentVolumeClaim != nil:
			return v.PersistentVolumeClaim.ClaimName == claim.Name
		case v.Ephemeral != nil:
			return !isShutDown(pod) && ephemeralClaim(pod, v) == claim.Name && metav1.IsControlledBy(claim, pod)
		}
		return false
	})
}

// ephemeralClaim returns the name of the volume claim that is created for an ephemeral volume of
// a pod.
func ephemeralClaim(pod *corev1.Pod, v corev1.Volume) string { return pod.Name + "-" + v.Name }

// isShutDown reports whether the node has shut the pod down and only its object is left.
func isShutDown(pod *corev1.Pod) bool {
	grace := pod.DeletionGracePeriodSeconds
	return pod.DeletionTimestamp != nil && grace != nil && *grace == 0
}

// IsBound reports whether a volume and a volume claim are bound to each other: the volume names
// exactly this claim, and either the claim names the volume or the volume's phase is Bound.
func IsBound(volume *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	ref := volume.Spec.ClaimRef
	if ref == nil || claim == nil || ref.UID != "" && ref.UID != claim.UID {
		return false
	}
	return claim.Spec.VolumeName == volume.Name || volume.Status.Phase == corev1.VolumeBound
}

// ClaimsOf returns the names of the volume claims that a pod may use.
func ClaimsOf(pod *corev1.Pod) []string {
	var names []string
	for _, v := range pod.Spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			names = append(names, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			names = append(names, ephemeralClaim(pod, v))
		}
	}
	return names
}
