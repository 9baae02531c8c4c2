package core

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
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
		Warn:        warnOfClaim,
		Default:     podspec.DefaultVolumeClaim,
		BeginCreate: resolveClass,
		PrepareForCreate: func(c *corev1.PersistentVolumeClaim) {
			c.Status.Phase = corev1.ClaimPending
			podspec.NormalizeDataSources(&c.Spec, nil)
		},
		PrepareForUpdate: func(c, old *corev1.PersistentVolumeClaim) { podspec.NormalizeDataSources(&c.Spec, &old.Spec) },
		ValidateIn: func(_ schema.GroupVersion, c, old *corev1.PersistentVolumeClaim) field.ErrorList {
			var was *corev1.PersistentVolumeClaimSpec
			if old != nil {
				was = &old.Spec
			}
			return podspec.ValidateVolumeClaimSpec(&c.Spec, was, field.NewPath("spec"))
		},
		ValidateUpdate: validateClaimUpdate,
		PrepareForStatusUpdate: func(c, _ *corev1.PersistentVolumeClaim) {
			c.Status.HealthStatus = nil // its feature gate is off by default
		},
		ValidateStatusUpdate: func(c, _ *corev1.PersistentVolumeClaim) field.ErrorList { return validateClaimStatus(&c.Status) },
		CopyStatus:           registry.CopyField(func(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaimStatus { return &c.Status }),
	})
}

// resolveClass sets the class of a volume claim that names none to the newest default class. An empty name means no
// class.
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

// validateClaimUpdate checks the changes of a volume claim. It gets a class and a volume once. While it is bound, it
// can grow, shrink to a size above its capacity, and change its volume attributes class.
func validateClaimUpdate(c, old *corev1.PersistentVolumeClaim) field.ErrorList {
	spec := field.NewPath("spec")
	undone := c.Spec.DeepCopy()
	if old.Spec.VolumeName == "" {
		undone.VolumeName = ""
	}
	if getsClass(c, old) {
		undone.StorageClassName = nil
	}
	if old.Status.Phase == corev1.ClaimBound {
		undone.VolumeAttributesClassName = old.Spec.VolumeAttributesClassName
		if undone.Resources.Requests != nil {
			undone.Resources.Requests[corev1.ResourceStorage] = old.Spec.Resources.Requests[corev1.ResourceStorage]
		}
	}
	errs := validateClassAnnotation(c, old)
	if len(validate.Immutable(*undone, old.Spec, spec)) > 0 {
		const immutable = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
		errs = append(errs, field.Forbidden(spec, immutable))
	}
	size, was := c.Spec.Resources.Requests[corev1.ResourceStorage], old.Spec.Resources.Requests[corev1.ResourceStorage]
	has := old.Status.Capacity[corev1.ResourceStorage]
	if size.Cmp(was) < 0 && size.Cmp(has) <= 0 {
		errs = append(errs, field.Forbidden(spec.Child("resources", "requests", "storage"), "field can not be less than status.capacity"))
	}
	errs = append(errs, validate.Immutable(c.Spec.VolumeMode, old.Spec.VolumeMode, field.NewPath("volumeMode"))...) // Kubernetes names it like this
	return append(errs, validateAttributesClass(c.Spec.VolumeAttributesClassName, old, spec.Child("volumeAttributesClassName"))...)
}

// getsClass reports whether an update sets the class of a volume claim in its spec for the first time. If the older
// annotation exists, the class must equal it.
func getsClass(c, old *corev1.PersistentVolumeClaim) bool {
	annotated, has := old.Annotations[corev1.BetaStorageClassAnnotation]
	return old.Spec.StorageClassName == nil && c.Spec.StorageClassName != nil && (!has || *c.Spec.StorageClassName == annotated)
}

// validateClassAnnotation checks that the older annotation for the class stays, unless the field replaces it.
func validateClassAnnotation(c, old *corev1.PersistentVolumeClaim) field.ErrorList {
	const name = corev1.BetaStorageClassAnnotation
	_, had := old.Annotations[name]
	if _, has := c.Annotations[name]; had && !has && getsClass(c, old) {
		return nil
	}
	return validate.Immutable(c.Annotations[name], old.Annotations[name], field.NewPath("metadata", "annotations", name))
}

// validateAttributesClass checks that a volume with a current attributes class does not lose its class.
func validateAttributesClass(name *string, old *corev1.PersistentVolumeClaim, at *field.Path) field.ErrorList {
	const set = " is forbidden when status.currentVolumeAttributesClassName is not nil"
	was := old.Spec.VolumeAttributesClassName
	switch {
	case old.Status.CurrentVolumeAttributesClassName == nil || ptr.Equal(name, was):
	case name == nil:
		return field.ErrorList{field.Forbidden(at, "update to nil"+set)}
	case *name == "":
		return field.ErrorList{field.Forbidden(at, "update to empty string"+set)}
	}
	return nil
}

// validateClaimStatus checks the size of a volume and the progress of its resizes.
func validateClaimStatus(s *corev1.PersistentVolumeClaimStatus) field.ErrorList {
	status := field.NewPath("status")
	capacity, resizes, allocated := status.Child("capacity"), status.Child("allocatedResourceStatuses"), status.Child("allocatedResources")
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(s.Capacity)) {
		errs = append(errs, validateWholeQuantity(s.Capacity[name], capacity.Key(string(name)))...)
	}
	known := []corev1.ClaimResourceStatus{
		corev1.PersistentVolumeClaimControllerResizeInProgress, corev1.PersistentVolumeClaimControllerResizeInfeasible,
		corev1.PersistentVolumeClaimNodeResizeInProgress, corev1.PersistentVolumeClaimNodeResizeInfeasible, corev1.PersistentVolumeClaimNodeResizePending,
	}
	for _, name := range slices.Sorted(maps.Keys(s.AllocatedResourceStatuses)) {
		errs = append(errs, validateClaimResource(name, resizes)...)
		if !slices.Contains(known, s.AllocatedResourceStatuses[name]) {
			errs = append(errs, field.NotSupported(resizes, name, known)) // as in Kubernetes, the error names the resource
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.AllocatedResources)) {
		amount, at := s.AllocatedResources[name], allocated.Key(string(name))
		wrong := validateClaimResource(name, allocated)
		if len(wrong) == 0 {
			wrong = validateWholeQuantity(amount, at)
		}
		if len(wrong) == 0 {
			wrong = podspec.ValidateQuantity(amount, at)
		}
		errs = append(errs, wrong...)
	}
	return errs
}

// validateClaimResource checks the name of a resource of a volume: storage, or a name with a domain of its own.
func validateClaimResource(name corev1.ResourceName, at *field.Path) field.ErrorList {
	errs := validate.FromMessages(string(name), at, validation.IsQualifiedName(string(name)))
	if len(errs) == 0 && podspec.IsNative(name) && name != corev1.ResourceStorage {
		errs = append(errs, field.NotSupported(at, name, []corev1.ResourceName{corev1.ResourceStorage}))
	}
	return errs
}
