package core

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/podspec"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

func persistentVolumes() registry.Resource {
	return registry.Define[corev1.PersistentVolume, corev1.PersistentVolumeList](registry.Resource{
		GroupVersion:        corev1.SchemeGroupVersion,
		Kind:                "PersistentVolume",
		Plural:              "persistentvolumes",
		ShortNames:          []string{"pv"},
		ValidateName:        apivalidation.NameIsDNSSubdomain,
		UnconditionalUpdate: true,
		ReturnDeletedObject: true,
	}, volumeColumns(), registry.Strategy[*corev1.PersistentVolume]{
		Warn: warnOfVolume,
		Default: func(pv *corev1.PersistentVolume) {
			registry.SetDefault(&pv.Status.Phase, corev1.VolumePending)
			registry.SetDefault(&pv.Spec.PersistentVolumeReclaimPolicy, corev1.PersistentVolumeReclaimRetain)
			registry.SetDefaultPtr(&pv.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
			if pv.Spec.HostPath != nil {
				registry.SetDefaultPtr(&pv.Spec.HostPath.Type, corev1.HostPathUnset)
			}
		},
		PrepareForCreate: func(pv *corev1.PersistentVolume) {
			pv.Status.Phase = corev1.VolumePending
			pv.Status.LastPhaseTransitionTime = &pv.CreationTimestamp
		},
		PrepareForStatusUpdate: prepareVolumeStatus,
		Validate:               validateVolume,
		ValidateUpdate:         validateVolumeUpdate,
		CopyStatus:             registry.CopyField(func(pv *corev1.PersistentVolume) *corev1.PersistentVolumeStatus { return &pv.Status }),
	})
}

// prepareVolumeStatus sets the time of the last phase transition if the client that changes the status does not.
func prepareVolumeStatus(pv, old *corev1.PersistentVolume) {
	since, before := &pv.Status.LastPhaseTransitionTime, old.Status.LastPhaseTransitionTime
	switch {
	case pv.Status.Phase == old.Status.Phase && *since == nil:
		*since = before
	case pv.Status.Phase != old.Status.Phase && (*since == nil || (*since).Equal(before)):
		*since = new(metav1.Now().Rfc3339Copy())
	}
}

func volumeColumns() []table.Column {
	return append([]table.Column{
		table.Text("Capacity", "Size of the volume.", func(pv *corev1.PersistentVolume) string { return storageText(pv.Spec.Capacity) }),
		table.Text("Access Modes", "Access modes of the volume.", func(pv *corev1.PersistentVolume) string {
			return accessModes(pv.Spec.AccessModes)
		}),
		table.Text("Reclaim Policy", "What happens to it when its claim is deleted.", func(pv *corev1.PersistentVolume) string {
			return string(pv.Spec.PersistentVolumeReclaimPolicy)
		}),
		table.Text("Status", "Whether it is bound, free or being deleted.", func(pv *corev1.PersistentVolume) string {
			if pv.DeletionTimestamp != nil {
				return "Terminating"
			}
			return string(pv.Status.Phase)
		}),
		table.Text("Claim", "Claim that it is bound to.", func(pv *corev1.PersistentVolume) string {
			if c := pv.Spec.ClaimRef; c != nil {
				return c.Namespace + "/" + c.Name
			}
			return ""
		}),
		table.Text("StorageClass", "Storage class of the volume.", func(pv *corev1.PersistentVolume) string { return pv.Spec.StorageClassName }),
		table.Text("VolumeAttributesClass", "Volume attributes class.", func(pv *corev1.PersistentVolume) string {
			return ptr.Deref(pv.Spec.VolumeAttributesClassName, "<unset>")
		}),
		table.Text("Reason", "Why it is in this phase.", func(pv *corev1.PersistentVolume) string { return pv.Status.Reason }),
		table.Age(),
	}, table.Wide(
		table.Text("VolumeMode", "Filesystem or block device.", func(pv *corev1.PersistentVolume) string {
			return string(ptr.Deref(pv.Spec.VolumeMode, "<unset>"))
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

// accessModes returns the access modes in the short form that users know, each once.
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

// mountOptionSources returns the kinds of volumes that may have mount options in an annotation. All kinds may have
// spec.mountOptions.
func mountOptionSources() []string {
	return []string{
		"gcePersistentDisk", "awsElasticBlockStore", "glusterfs", "nfs", "rbd", "quobyte", "iscsi", "cinder", "cephfs",
		"azureFile", "vsphereVolume", "azureDisk", "photonPersistentDisk",
	}
}

// validateMountOptions checks that the kind of a volume with mount options in an annotation allows them.
func validateMountOptions(pv *corev1.PersistentVolume) field.ErrorList {
	_, given := pv.Annotations[corev1.MountOptionAnnotation]
	may := func(source string) bool { return slices.Contains(mountOptionSources(), source) }
	if !given || slices.ContainsFunc(validate.SetMembers(&pv.Spec.PersistentVolumeSource), may) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("metadata", "annotations", corev1.MountOptionAnnotation), "may not specify mount options for this volume type")}
}

func validateVolume(pv *corev1.PersistentVolume) field.ErrorList {
	spec := field.NewPath("spec")
	errs := slices.Concat(
		validateMountOptions(pv),
		validateVolumeModes(pv.Spec.AccessModes, spec.Child("accessModes")),
		validateCapacity(pv.Spec.Capacity, spec.Child("capacity")),
		validate.OneOf(pv.Spec.PersistentVolumeReclaimPolicy, spec.Child("persistentVolumeReclaimPolicy"),
			corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRecycle, corev1.PersistentVolumeReclaimRetain),
		validate.OneOfPtr(pv.Spec.VolumeMode, spec.Child("volumeMode"), corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem),
		validate.OptionalSubdomain(pv.Spec.StorageClassName, spec.Child("storageClassName")),
	)
	if len(pv.Spec.Capacity) == 0 {
		errs = append(errs, field.Required(spec.Child("capacity"), ""))
	}
	if _, sized := pv.Spec.Capacity[corev1.ResourceStorage]; !sized || len(pv.Spec.Capacity) > 1 {
		errs = append(errs, field.NotSupported(spec.Child("capacity"), pv.Spec.Capacity, []corev1.ResourceName{corev1.ResourceStorage}))
	}
	errs = append(errs, validateVolumePlace(pv, spec)...)
	return append(errs, podspec.ValidatePersistentVolumeSource(&pv.Spec, spec)...)
}

// validateVolumeModes checks the access modes of a volume. It needs at least one.
func validateVolumeModes(modes []corev1.PersistentVolumeAccessMode, at *field.Path) field.ErrorList {
	if len(modes) == 0 {
		return field.ErrorList{field.Required(at, "")}
	}
	return podspec.ValidateAccessModes(modes, at)
}

// validateWholeQuantity checks an amount, rounded up to a whole number.
func validateWholeQuantity(amount resource.Quantity, at *field.Path) field.ErrorList {
	if amount.Value() < 0 {
		return field.ErrorList{field.Invalid(at, amount.Value(), "must be a valid resource quantity")}
	}
	return nil
}

// validateCapacity checks the size of a volume.
func validateCapacity(list corev1.ResourceList, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(list)) {
		size := list[name]
		errs = append(errs, validateWholeQuantity(size, at.Key(string(name)))...)
		if size.Sign() <= 0 {
			errs = append(errs, field.Invalid(at.Key(string(name)), size.String(), "must be greater than zero"))
		}
	}
	return errs
}

// validateVolumePlace checks the node affinity of a volume, and its class.
func validateVolumePlace(pv *corev1.PersistentVolume, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	affinity := spec.Child("nodeAffinity")
	if a := pv.Spec.NodeAffinity; a != nil {
		if a.Required == nil {
			errs = append(errs, field.Required(affinity.Child("required"), "must specify required node constraints"))
		} else {
			errs = append(errs, podspec.ValidateNodeSelector(a.Required, affinity.Child("required"))...)
		}
	}
	if name := pv.Spec.VolumeAttributesClassName; name != nil {
		path := spec.Child("volumeAttributesClassName")
		if *name == "" {
			errs = append(errs, field.Required(path, "an empty string is disallowed"))
		} else {
			errs = append(errs, validate.OptionalSubdomain(*name, path)...)
		}
		if pv.Spec.CSI == nil {
			errs = append(errs, field.Required(spec.Child("csi"), "has to be specified when using volumeAttributesClassName"))
		}
	}
	return errs
}

// validateSameSource checks that the source of a volume does not change. A CSI driver may get its
// controllerExpandSecretRef later, once.
func validateSameSource(pv, old *corev1.PersistentVolume, at *field.Path) field.ErrorList {
	is, was := pv.Spec.PersistentVolumeSource.DeepCopy(), &old.Spec.PersistentVolumeSource
	if is.CSI != nil && was.CSI != nil && was.CSI.ControllerExpandSecretRef == nil {
		is.CSI.ControllerExpandSecretRef = nil
	}
	if equality.Semantic.DeepEqual(is, was) {
		return nil
	}
	return field.ErrorList{field.Forbidden(at, "spec.persistentvolumesource is immutable after creation")}
}

func validateVolumeUpdate(pv, old *corev1.PersistentVolume) field.ErrorList {
	spec := field.NewPath("spec")
	errs := append(
		validate.Immutable(pv.Spec.VolumeMode, old.Spec.VolumeMode, field.NewPath("volumeMode")), // Kubernetes names it like this
		validateSameSource(pv, old, spec.Child("persistentvolumesource"))...)
	if old.Spec.VolumeAttributesClassName != nil && pv.Spec.VolumeAttributesClassName == nil {
		errs = append(errs, field.Forbidden(spec.Child("volumeAttributesClassName"), "update from non-nil value to nil is forbidden"))
	}
	return append(errs, validateSameNodes(pv.Spec.NodeAffinity, old.Spec.NodeAffinity)...)
}

// stableLabels returns the names that labels of nodes have had since they are stable.
func stableLabels() map[string]string {
	return map[string]string{
		corev1.LabelFailureDomainBetaZone:   corev1.LabelTopologyZone,
		corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
		corev1.LabelInstanceType:            corev1.LabelInstanceTypeStable,
		"beta.kubernetes.io/os":             corev1.LabelOSStable,
		"beta.kubernetes.io/arch":           corev1.LabelArchStable,
	}
}

// validateSameNodes checks that an update does not change which nodes can reach a volume. Deprecated labels may
// get their stable names.
func validateSameNodes(affinity, old *corev1.VolumeNodeAffinity) field.ErrorList {
	if old == nil {
		return nil
	}
	undone := affinity.DeepCopy()
	if undone != nil && undone.Required != nil && old.Required != nil && len(undone.Required.NodeSelectorTerms) == len(old.Required.NodeSelectorTerms) {
		for i, was := range old.Required.NodeSelectorTerms {
			term := &undone.Required.NodeSelectorTerms[i]
			undoStableLabels(term.MatchExpressions, was.MatchExpressions)
			undoStableLabels(term.MatchFields, was.MatchFields)
		}
	}
	if equality.Semantic.DeepEqual(undone, old) {
		return nil
	}
	at := field.NewPath("nodeAffinity") // Kubernetes names it like this
	return field.ErrorList{field.Invalid(at, affinity, apivalidation.FieldImmutableErrorMsg+", except for updating from beta label to GA")}
}

func undoStableLabels(requirements, were []corev1.NodeSelectorRequirement) {
	for i := range min(len(requirements), len(were)) {
		if is, was := &requirements[i].Key, were[i].Key; stableLabels()[was] == *is {
			*is = was
		}
	}
}
