package apiserver

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/coppice-dev/coppice/internal/controller/volumeprotection"
)

// protect is an admission plug-in that puts the protection finalizers on claims and
// volumes when they are created (R23).
type protect struct{}

// Handles implements admission.Interface.
func (protect) Handles(operation admission.Operation) bool { return operation == admission.Create }

// Admit implements admission.MutationInterface.
func (protect) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	finalizer := protectionOf(a.GetResource().GroupResource())
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

// protectionOf is the protection finalizer of a resource; empty if it has none.
func protectionOf(resource schema.GroupResource) string {
	switch resource {
	case corev1.Resource("persistentvolumeclaims"):
		return volumeprotection.ClaimFinalizer
	case corev1.Resource("persistentvolumes"):
		return volumeprotection.VolumeFinalizer
	}
	return ""
}
