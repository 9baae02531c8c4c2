package core

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/podspec"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/storage"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

func persistentVolumeClaims() registry.Resource {
	return registry.Define[corev1.PersistentVolumeClaim, corev1.PersistentVolumeClaimList](registry.Resource{
		GroupVersion:        corev1.SchemeGroupVersion,
		Kind:                "PersistentVolumeClaim",
		Plural:              "persistentvolumeclaims",
		Namespaced:          true,
		ShortNames:          []string{"pvc"},
		ValidateName:        apivalidation.NameIsDNSSubdomain,
		UnconditionalUpdate: true,
		ReturnDeletedObject: true,
	}, claimColumns(), registry.Strategy[*corev1.PersistentVolumeClaim]{
		Default:     podspec.DefaultVolumeClaim,
		BeginCreate: resolveClass,
		PrepareForCreate: func(c *corev1.PersistentVolumeClaim) {
			c.Status.Phase = corev1.ClaimPending
			podspec.NormalizeDataSources(&c.Spec, nil)
		},
		PrepareForUpdate: func(c, old *corev1.PersistentVolumeClaim) { podspec.NormalizeDataSources(&c.Spec, &old.Spec) },
		Validate: func(c *corev1.PersistentVolumeClaim) field.ErrorList {
			return podspec.ValidateVolumeClaimSpec(&c.Spec, field.NewPath("spec"))
		},
		ValidateUpdate: validateClaimUpdate,
		CopyStatus:     registry.CopyField(func(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaimStatus { return &c.Status }),
	})
}

// resolveClass sets the class of a volume claim without one to the newest of the classes that
// are marked as default; an empty name means no class.
func resolveClass(ctx context.Context, d registry.Registries, c *corev1.PersistentVolumeClaim) error {
	if _, named := c.Annotations[corev1.BetaStorageClassAnnotation]; named || c.Spec.StorageClassName != nil {
		return nil
	}
	classes, err := registry.ListFromCache[*storagev1.StorageClass](ctx, d, storagev1.Resource("storageclasses"))
	if err != nil {
		return err
	}
	var chosen *storagev1.StorageClass
	for _, class := range classes {
		if class.Annotations[storage.IsDefaultClassAnnotation] != "true" {
			continue
		}
		if chosen == nil || chosen.CreationTimestamp.Before(&class.CreationTimestamp) {
			chosen = class
		}
	}
	if chosen != nil {
		c.Spec.StorageClassName = &chosen.Name
	}
	return nil
}

func claimColumns() []table.Column {
	return append([]table.Column{
		table.Text("Status", "Whether it is bound, waiting or being deleted.", func(c *corev1.PersistentVolumeClaim) string {
			if c.DeletionTimestamp != nil {
				return "Terminating"
			}
			return string(c.Status.Phase)
		}),
		table.Text("Volume", "Volume that it is bound to.", func(c *corev1.PersistentVolumeClaim) string { return c.Spec.VolumeName }),
		table.Text("Capacity", "Size of that volume.", func(c *corev1.PersistentVolumeClaim) string { return storageText(c.Status.Capacity) }),
		table.Text("Access Modes", "Access modes of that volume.", func(c *corev1.PersistentVolumeClaim) string {
			return accessModes(c.Status.AccessModes)
		}),
		table.Text("StorageClass", "Requested storage class.", func(c *corev1.PersistentVolumeClaim) string {
			return ptr.Deref(c.Spec.StorageClassName, "")
		}),
		table.Text("VolumeAttributesClass", "Requested volume attributes class.", func(c *corev1.PersistentVolumeClaim) string {
			return ptr.Deref(c.Spec.VolumeAttributesClassName, "<unset>")
		}),
		table.Age(),
	}, table.Wide(
		table.Text("VolumeMode", "Filesystem or block device.", func(c *corev1.PersistentVolumeClaim) string {
			return string(ptr.Deref(c.Spec.VolumeMode, "<unset>"))
		}),
	)...)
}

// validateClaimUpdate: a volume claim can be bound once and can grow.
func validateClaimUpdate(c, old *corev1.PersistentVolumeClaim) field.ErrorList {
	spec := field.NewPath("spec")
	undone := c.Spec.DeepCopy()
	undone.Resources.Requests = old.Spec.Resources.Requests
	if old.Spec.VolumeName != "" {
		undone.VolumeAttributesClassName = old.Spec.VolumeAttributesClassName
	}
	if old.Spec.VolumeName == "" {
		undone.VolumeName = ""
	}
	if old.Spec.StorageClassName == nil {
		undone.StorageClassName = nil
	}
	var errs field.ErrorList
	if len(validate.Immutable(*undone, old.Spec, spec)) > 0 {
		errs = append(errs, field.Forbidden(spec, "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"))
	}
	size, was := c.Spec.Resources.Requests[corev1.ResourceStorage], old.Spec.Resources.Requests[corev1.ResourceStorage]
	if size.Cmp(was) < 0 {
		errs = append(errs, field.Forbidden(spec.Child("resources", "requests", "storage"), "field can not be less than previous value"))
	}
	return errs
}
