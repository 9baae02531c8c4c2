package admissionchain

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/coppice-dev/coppice/internal/rules/inuse"
)

// storageInUseProtection puts the protection finalizers on PersistentVolumeClaims,
// PersistentVolumes and VolumeAttributesClasses when they are created (R23).
type storageInUseProtection struct{}

// Handles implements admission.Interface.
func (storageInUseProtection) Handles(operation admission.Operation) bool {
	return operation == admission.Create
}

// Admit implements admission.MutationInterface.
func (storageInUseProtection) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	finalizer := protectionFinalizer(a.GetResource().GroupResource())
	if finalizer == "" || a.GetSubresource() != "" {
		return nil
	}
	m, err := meta.Accessor(a.GetObject())
	if err != nil {
		return err
	}
	if !slices.Contains(m.GetFinalizers(), finalizer) {
		m.SetFinalizers(append(m.GetFinalizers(), finalizer))
	}
	return nil
}

// protectionFinalizer returns the protection finalizer of a resource, or "".
func protectionFinalizer(resource schema.GroupResource) string {
	switch resource {
	case corev1.Resource("persistentvolumeclaims"):
		return inuse.PVCProtection
	case corev1.Resource("persistentvolumes"):
		return inuse.PVProtection
	case storagev1.Resource("volumeattributesclasses"):
		return inuse.VACProtection
	}
	return ""
}
