package inventory

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/rules/inuse"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// Uses reports whether a pod uses a PersistentVolumeClaim of its namespace, by the rule of the controller that protects
// the claim (R23). A pod of which only the metadata is known uses none.
func (i *Inventory) Uses(pod *Object, claim ownership.Object) bool {
	known := i.Pods[pod.UID]
	if known == nil {
		return false
	}
	meta := metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, UID: types.UID(pod.UID)}
	if pod.Phase != ownership.Active {
		meta.DeletionTimestamp, meta.DeletionGracePeriodSeconds = &metav1.Time{Time: pod.Deadline()}, new(int64(pod.Grace.Seconds()))
	}
	now := known.Object(meta)
	return inuse.Uses(&now, ClaimOf(claim))
}

// ClaimOf returns a PersistentVolumeClaim with the fields that the decision about its protection reads.
func ClaimOf(o ownership.Object) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: o.Name, Namespace: o.Namespace, UID: types.UID(o.UID)}}
	for _, r := range o.Owners {
		isController := r.Controller == ownership.True
		claim.OwnerReferences = append(claim.OwnerReferences, metav1.OwnerReference{
			APIVersion: r.APIVersion, Kind: r.Kind, Name: r.Name, UID: types.UID(r.UID), Controller: &isController,
		})
	}
	return claim
}
