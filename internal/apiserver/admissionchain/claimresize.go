package admissionchain

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/utils/ptr"
)

// claimResizeName is upstream's name of the plug-in.
const claimResizeName = "PersistentVolumeClaimResize"

// claimResize lets a bound volume claim grow only if its storage class allows that: otherwise no controller
// would expand its volume.
type claimResize struct {
	*admission.Handler

	classes storagelisters.StorageClassLister
}

func newClaimResize(shared informers.SharedInformerFactory) *claimResize {
	classes := shared.Storage().V1().StorageClasses()
	p := &claimResize{admission.NewHandler(admission.Update), classes.Lister()}
	p.SetReadyFunc(classes.Informer().HasSynced)
	return p
}

// Validate implements admission.ValidationInterface.
func (p *claimResize) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	claim, isClaim := a.GetObject().(*corev1.PersistentVolumeClaim)
	old, wasClaim := a.GetOldObject().(*corev1.PersistentVolumeClaim)
	if !isClaim || !wasClaim || a.GetSubresource() != "" {
		return nil
	}
	size, was := claim.Spec.Resources.Requests[corev1.ResourceStorage], old.Spec.Resources.Requests[corev1.ResourceStorage]
	if size.Cmp(was) <= 0 {
		return nil
	}
	if old.Status.Phase != corev1.ClaimBound {
		return admission.NewForbidden(a, errors.New("Only bound persistent volume claims can be expanded"))
	}
	if !p.WaitForReady() {
		return admission.NewForbidden(a, errors.New("not yet ready to handle request"))
	}
	if class := classOf(claim); class == "" || class != classOf(old) || !p.allowsExpansion(class) {
		return admission.NewForbidden(a, errors.New("only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"))
	}
	return nil
}

func (p *claimResize) allowsExpansion(class string) bool {
	found, err := p.classes.Get(class)
	return err == nil && ptr.Deref(found.AllowVolumeExpansion, false)
}

// classOf returns the storage class of a volume claim; the older annotation has precedence.
func classOf(claim *corev1.PersistentVolumeClaim) string {
	if class, ok := claim.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return class
	}
	return ptr.Deref(claim.Spec.StorageClassName, "")
}
