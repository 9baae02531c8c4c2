package registry

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func persistentVolumes() Kind {
	return define[corev1.PersistentVolume, corev1.PersistentVolumeList](Kind{
		GroupVersion:        corev1.SchemeGroupVersion,
		Kind:                "PersistentVolume",
		Resource:            "persistentvolumes",
		Why:                 "Cluster-scoped and often stuck behind a finalizer: a common case of a deletion that has to be explained.",
		ShortNames:          []string{"pv"},
		Name:                apivalidation.NameIsDNSSubdomain,
		UnconditionalUpdate: true,
		AnswersWithObject:   true,
	}, volumeColumns(), behaviour[*corev1.PersistentVolume]{
		defaults: func(pv *corev1.PersistentVolume) {
			setDefault(&pv.Status.Phase, corev1.VolumePending)
			setDefault(&pv.Spec.PersistentVolumeReclaimPolicy, corev1.PersistentVolumeReclaimRetain)
			setDefaultPtr(&pv.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
			if pv.Spec.HostPath != nil {
				setDefaultPtr(&pv.Spec.HostPath.Type, corev1.HostPathUnset)
			}
		},
		creating:       func(pv *corev1.PersistentVolume) { pv.Status.Phase = corev1.VolumePending },
		validate:       validateVolume,
		validateUpdate: validateVolumeUpdate,
		status:         part(func(pv *corev1.PersistentVolume) *corev1.PersistentVolumeStatus { return &pv.Status }),
	})
}

func volumeColumns() []column {
	return append([]column{
		text("Capacity", "Size of the volume.", func(pv *corev1.PersistentVolume) string { return storageText(pv.Spec.Capacity) }),
		text("Access Modes", "Ways in which it can be mounted.", func(pv *corev1.PersistentVolume) string {
			return accessModes(pv.Spec.AccessModes)
		}),
		text("Reclaim Policy", "What becomes of it when its claim is deleted.", func(pv *corev1.PersistentVolume) string {
			return string(pv.Spec.PersistentVolumeReclaimPolicy)
		}),
		text("Status", "Whether it is bound, free or being deleted.", func(pv *corev1.PersistentVolume) string {
			if pv.DeletionTimestamp != nil {
				return "Terminating"
			}
			return string(pv.Status.Phase)
		}),
		text("Claim", "Claim that it is bound to.", func(pv *corev1.PersistentVolume) string {
			if c := pv.Spec.ClaimRef; c != nil {
				return c.Namespace + "/" + c.Name
			}
			return ""
		}),
		text("StorageClass", "Class that it belongs to.", func(pv *corev1.PersistentVolume) string { return pv.Spec.StorageClassName }),
		text("VolumeAttributesClass", "Class of its performance.", func(pv *corev1.PersistentVolume) string {
			return deref(pv.Spec.VolumeAttributesClassName, "<unset>")
		}),
		text("Reason", "Why it is in this state.", func(pv *corev1.PersistentVolume) string { return pv.Status.Reason }),
		ageColumn(),
	}, wide(
		text("VolumeMode", "Filesystem or block device.", func(pv *corev1.PersistentVolume) string {
			return string(deref(pv.Spec.VolumeMode, "<unset>"))
		}),
	)...)
}

func storageText(list corev1.ResourceList) string {
	quantity, ok := list[corev1.ResourceStorage]
	if !ok {
		return ""
	}
	return quantity.String()
}

// accessModes in the short form that users know, each once.
func accessModes(modes []corev1.PersistentVolumeAccessMode) string {
	var short []string
	for _, m := range []struct {
		mode corev1.PersistentVolumeAccessMode
		text string
	}{
		{corev1.ReadWriteOnce, "RWO"},
		{corev1.ReadOnlyMany, "ROX"},
		{corev1.ReadWriteMany, "RWX"},
		{corev1.ReadWriteOncePod, "RWOP"},
	} {
		if slices.Contains(modes, m.mode) {
			short = append(short, m.text)
		}
	}
	return strings.Join(short, ",")
}

func validateVolume(pv *corev1.PersistentVolume) field.ErrorList {
	spec := field.NewPath("spec")
	errs := slices.Concat(
		validateAccessModes(pv.Spec.AccessModes, spec.Child("accessModes")),
		validateQuantities(pv.Spec.Capacity, spec.Child("capacity")),
		oneOf(pv.Spec.PersistentVolumeReclaimPolicy, spec.Child("persistentVolumeReclaimPolicy"),
			corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRecycle, corev1.PersistentVolumeReclaimRetain),
		oneOfPtr(pv.Spec.VolumeMode, spec.Child("volumeMode"), corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem),
		optionalSubdomain(pv.Spec.StorageClassName, spec.Child("storageClassName")),
	)
	if len(pv.Spec.Capacity) == 0 {
		errs = append(errs, field.Required(spec.Child("capacity"), ""))
	} else if _, sized := pv.Spec.Capacity[corev1.ResourceStorage]; !sized || len(pv.Spec.Capacity) > 1 {
		errs = append(errs, field.NotSupported(spec.Child("capacity"), pv.Spec.Capacity, []corev1.ResourceName{corev1.ResourceStorage}))
	}
	errs = append(errs, validateVolumeSource(pv, spec)...)
	switch sources := setPointers(&pv.Spec.PersistentVolumeSource); len(sources) {
	case 0:
		errs = append(errs, field.Required(spec, "must specify a volume type"))
	case 1:
	default:
		for _, extra := range sources[1:] {
			errs = append(errs, field.Forbidden(spec.Child(extra), "may not specify more than 1 volume type"))
		}
	}
	return errs
}

// validateVolumeSource checks where a volume is. Of the clouds' own sources, which
// their drivers have replaced, only the names are known here.
func validateVolumeSource(pv *corev1.PersistentVolume, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	affinity := spec.Child("nodeAffinity")
	if a := pv.Spec.NodeAffinity; a != nil {
		if a.Required == nil {
			errs = append(errs, field.Required(affinity.Child("required"), "must specify required node constraints"))
		} else {
			errs = append(errs, validateNodeSelector(a.Required, affinity.Child("required"))...)
		}
	}
	if s := pv.Spec.HostPath; s != nil {
		errs = append(errs, validateHostPath(s, spec.Child("hostPath"))...)
		if s.Path == "/" && pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
			errs = append(errs, field.Forbidden(spec.Child("persistentVolumeReclaimPolicy"), "may not be 'recycle' for a hostPath mount of '/'"))
		}
	}
	if s := pv.Spec.Local; s != nil {
		errs = append(errs, required(s.Path, spec.Child("local", "path"))...)
		errs = append(errs, noBackSteps(s.Path, spec.Child("local", "path"))...)
		if pv.Spec.NodeAffinity == nil {
			errs = append(errs, field.Required(affinity, "Local volume requires node affinity"))
		}
	}
	if s := pv.Spec.NFS; s != nil {
		errs = append(errs, validateNFS(s, spec.Child("nfs"))...)
	}
	if s := pv.Spec.CSI; s != nil {
		errs = append(errs, validateDriver(s.Driver, spec.Child("csi", "driver"))...)
		errs = append(errs, required(s.VolumeHandle, spec.Child("csi", "volumeHandle"))...)
	}
	return errs
}

func validateAccessModes(modes []corev1.PersistentVolumeAccessMode, path *field.Path) field.ErrorList {
	if len(modes) == 0 {
		return field.ErrorList{field.Required(path, "at least 1 access mode is required")}
	}
	var errs field.ErrorList
	if len(modes) > 1 && slices.Contains(modes, corev1.ReadWriteOncePod) {
		errs = append(errs, field.Forbidden(path, "may not use ReadWriteOncePod with other access modes"))
	}
	for _, mode := range modes {
		errs = append(errs, oneOf(mode, path,
			corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce, corev1.ReadWriteOncePod)...)
	}
	return errs
}

func validateVolumeUpdate(pv, old *corev1.PersistentVolume) field.ErrorList {
	spec := field.NewPath("spec")
	errs := append(
		immutable(pv.Spec.PersistentVolumeSource, old.Spec.PersistentVolumeSource, spec.Child("persistentvolumesource")),
		immutable(pv.Spec.VolumeMode, old.Spec.VolumeMode, spec.Child("volumeMode"))...)
	if old.Spec.NodeAffinity != nil {
		errs = append(errs, immutable(pv.Spec.NodeAffinity, old.Spec.NodeAffinity, spec.Child("nodeAffinity"))...)
	}
	return errs
}

func persistentVolumeClaims() Kind {
	return define[corev1.PersistentVolumeClaim, corev1.PersistentVolumeClaimList](Kind{
		GroupVersion:        corev1.SchemeGroupVersion,
		Kind:                "PersistentVolumeClaim",
		Resource:            "persistentvolumeclaims",
		Why:                 "What StatefulSets leave behind, or delete, by policy; and what protection finalizers hold.",
		Namespaced:          true,
		ShortNames:          []string{"pvc"},
		Name:                apivalidation.NameIsDNSSubdomain,
		UnconditionalUpdate: true,
		AnswersWithObject:   true,
	}, claimColumns(), behaviour[*corev1.PersistentVolumeClaim]{
		defaults: defaultClaim,
		resolve:  resolveClass,
		creating: func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimPending },
		validate: func(c *corev1.PersistentVolumeClaim) field.ErrorList {
			return validateClaimSpec(&c.Spec, field.NewPath("spec"))
		},
		validateUpdate: validateClaimUpdate,
		status:         part(func(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaimStatus { return &c.Status }),
	})
}

// defaultClaim also serves the claim templates of StatefulSets.
func defaultClaim(c *corev1.PersistentVolumeClaim) {
	setDefault(&c.Status.Phase, corev1.ClaimPending)
	setDefaultPtr(&c.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
}

// resolveClass gives a claim that says nothing of a class, not even that it wants
// none, the newest of the classes that are marked as default.
func resolveClass(ctx context.Context, d directory, c *corev1.PersistentVolumeClaim) error {
	if _, named := c.Annotations[corev1.BetaStorageClassAnnotation]; named || c.Spec.StorageClassName != nil {
		return nil
	}
	classes, err := listOf[*storagev1.StorageClass](ctx, d, storagev1.Resource("storageclasses"))
	if err != nil {
		return err
	}
	var chosen *storagev1.StorageClass
	for _, class := range classes {
		if class.Annotations[defaultClassAnnotation] != "true" {
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

func claimColumns() []column {
	return append([]column{
		text("Status", "Whether it is bound, waiting or being deleted.", func(c *corev1.PersistentVolumeClaim) string {
			if c.DeletionTimestamp != nil {
				return "Terminating"
			}
			return string(c.Status.Phase)
		}),
		text("Volume", "Volume that it is bound to.", func(c *corev1.PersistentVolumeClaim) string { return c.Spec.VolumeName }),
		text("Capacity", "Size of that volume.", func(c *corev1.PersistentVolumeClaim) string { return storageText(c.Status.Capacity) }),
		text("Access Modes", "Ways in which that volume can be mounted.", func(c *corev1.PersistentVolumeClaim) string {
			return accessModes(c.Status.AccessModes)
		}),
		text("StorageClass", "Class that is asked for a volume.", func(c *corev1.PersistentVolumeClaim) string {
			return deref(c.Spec.StorageClassName, "")
		}),
		text("VolumeAttributesClass", "Class of the performance that is asked for.", func(c *corev1.PersistentVolumeClaim) string {
			return deref(c.Spec.VolumeAttributesClassName, "<unset>")
		}),
		ageColumn(),
	}, wide(
		text("VolumeMode", "Filesystem or block device.", func(c *corev1.PersistentVolumeClaim) string {
			return string(deref(c.Spec.VolumeMode, "<unset>"))
		}),
	)...)
}

func validateClaimSpec(s *corev1.PersistentVolumeClaimSpec, spec *field.Path) field.ErrorList {
	errs := append(
		validateAccessModes(s.AccessModes, spec.Child("accessModes")),
		oneOfPtr(s.VolumeMode, spec.Child("volumeMode"), corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem)...)
	errs = append(errs, optionalSelector(s.Selector, spec.Child("selector"))...)
	errs = append(errs, optionalSubdomain(deref(s.StorageClassName, ""), spec.Child("storageClassName"))...)
	errs = append(errs, optionalSubdomain(deref(s.VolumeAttributesClassName, ""), spec.Child("volumeAttributesClassName"))...)
	if source := s.DataSource; source != nil {
		errs = append(errs, required(source.Name, spec.Child("dataSource", "name"))...)
		errs = append(errs, required(source.Kind, spec.Child("dataSource", "kind"))...)
	}
	if source := s.DataSourceRef; source != nil {
		errs = append(errs, required(source.Name, spec.Child("dataSourceRef", "name"))...)
		errs = append(errs, required(source.Kind, spec.Child("dataSourceRef", "kind"))...)
	}
	path := spec.Child("resources").Key(string(corev1.ResourceStorage))
	size, ok := s.Resources.Requests[corev1.ResourceStorage]
	switch {
	case !ok:
		errs = append(errs, field.Required(path, ""))
	case size.Cmp(resource.Quantity{}) <= 0:
		errs = append(errs, field.Invalid(path, size.String(), "must be greater than zero"))
	}
	return errs
}

// validateClaimUpdate: a claim can be bound once and can grow.
func validateClaimUpdate(c, old *corev1.PersistentVolumeClaim) field.ErrorList {
	spec := field.NewPath("spec")
	undone := c.Spec.DeepCopy()
	undone.Resources.Requests = old.Spec.Resources.Requests
	undone.VolumeAttributesClassName = old.Spec.VolumeAttributesClassName
	if old.Spec.VolumeName == "" {
		undone.VolumeName = ""
	}
	if old.Spec.StorageClassName == nil {
		undone.StorageClassName = nil
	}
	var errs field.ErrorList
	if len(immutable(*undone, old.Spec, spec)) > 0 {
		errs = append(errs, field.Forbidden(spec, "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"))
	}
	size, was := c.Spec.Resources.Requests[corev1.ResourceStorage], old.Spec.Resources.Requests[corev1.ResourceStorage]
	if size.Cmp(was) < 0 {
		errs = append(errs, field.Forbidden(spec.Child("resources", "requests", "storage"), "field can not be less than previous value"))
	}
	return errs
}
