package storage

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/podspec"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

const (
	// maxAttachmentMetadata is the maximum size of a driver's metadata of an attachment, in bytes.
	maxAttachmentMetadata = 256 << 10
	// maxVolumeError is the maximum length of an error message.
	maxVolumeError = 1024
)

// volumeAttachments are the intents to attach volumes to nodes.
func volumeAttachments() registry.Resource {
	return registry.Define[storagev1.VolumeAttachment, storagev1.VolumeAttachmentList](registry.Resource{
		GroupVersion:        storagev1.SchemeGroupVersion,
		Kind:                "VolumeAttachment",
		Plural:              "volumeattachments",
		ValidateName:        apivalidation.NameIsDNSSubdomain,
		ReturnDeletedObject: true,
	}, []table.Column{
		table.Text("Attacher", "Driver that attaches the volume.", func(a *storagev1.VolumeAttachment) string { return a.Spec.Attacher }),
		table.Text("PV", "Volume to be attached.", func(a *storagev1.VolumeAttachment) string {
			return ptr.Deref(a.Spec.Source.PersistentVolumeName, "")
		}),
		table.Text("Node", "Node that it is attached to.", func(a *storagev1.VolumeAttachment) string { return a.Spec.NodeName }),
		table.Text("Attached", "Whether it is attached.", func(a *storagev1.VolumeAttachment) string {
			return strconv.FormatBool(a.Status.Attached)
		}),
		table.Age(),
	}, registry.Strategy[*storagev1.VolumeAttachment]{
		Default: func(a *storagev1.VolumeAttachment) {
			if inline := a.Spec.Source.InlineVolumeSpec; inline != nil && inline.HostPath != nil {
				registry.SetDefaultPtr(&inline.HostPath.Type, corev1.HostPathUnset)
			}
		},
		Validate: validateAttachment,
		ValidateCreate: func(a *storagev1.VolumeAttachment) field.ErrorList {
			return validateAttacher(a.Spec.Attacher, field.NewPath("spec", "attacher"))
		},
		ValidateUpdate: func(a, old *storagev1.VolumeAttachment) field.ErrorList {
			return append(podspec.ValidateDriverName(a.Spec.Attacher, field.NewPath("spec", "attacher")),
				validate.ImmutableUnnamed(a.Spec, old.Spec, field.NewPath("spec"))...)
		},
		CopyStatus:           registry.CopyField(func(a *storagev1.VolumeAttachment) *storagev1.VolumeAttachmentStatus { return &a.Status }),
		ValidateStatusUpdate: validateAttachmentStatus,
	})
}

func validateAttachment(a *storagev1.VolumeAttachment) field.ErrorList {
	spec := field.NewPath("spec")
	return slices.Concat(
		validateAttachmentSource(&a.Spec.Source, spec.Child("source")),
		validate.FromMessages(a.Spec.NodeName, spec.Child("nodeName"), apivalidation.NameIsDNSSubdomain(a.Spec.NodeName, false)),
	)
}

// maxAttacher is the maximum length of the name of an attacher.
const maxAttacher = 63

func validateAttacher(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return validate.Required(name, at)
	}
	return append(validate.LongNameCaseless(name, at), validate.MaxCharacters(name, at, maxAttacher)...)
}

// validateAttachmentSource checks that there is one source. Of two, the name of the volume is checked.
func validateAttachmentSource(s *storagev1.VolumeAttachmentSource, at *field.Path) field.ErrorList {
	const one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
	var errs field.ErrorList
	name := at.Child("persistentVolumeName")
	switch {
	case s.InlineVolumeSpec == nil && s.PersistentVolumeName == nil:
		errs = append(errs, field.Required(at, one))
	case s.InlineVolumeSpec != nil && s.PersistentVolumeName != nil:
		errs = append(errs, field.Forbidden(at, one))
	case s.InlineVolumeSpec != nil:
		errs = append(errs, validateInlineVolume(s.InlineVolumeSpec, at.Child("inlineVolumeSpec"))...)
	case *s.PersistentVolumeName == "":
		errs = append(errs, field.Required(name, "must specify non empty persistentVolumeName"))
	}
	if s.PersistentVolumeName == nil {
		return errs
	}
	return append(errs, validate.FromMessages(*s.PersistentVolumeName, name, apivalidation.NameIsDNSSubdomain(*s.PersistentVolumeName, false))...)
}

// validateInlineVolume checks a migrated in-tree volume from the spec of a pod, which has no PersistentVolume.
func validateInlineVolume(v *corev1.PersistentVolumeSpec, at *field.Path) field.ErrorList {
	const context = " in the context of inline volumes"
	var errs field.ErrorList
	forbid := func(wrong bool, name, message string) {
		if wrong {
			errs = append(errs, field.Forbidden(at.Child(name), message+context))
		}
	}
	forbid(v.ClaimRef != nil, "claimRef", "may not be specified")
	forbid(len(v.Capacity) > 0, "capacity", "may not be specified")
	if v.CSI == nil {
		errs = append(errs, field.Required(at.Child("csi"), "has to be specified"+context))
	}
	if len(v.AccessModes) == 0 {
		errs = append(errs, field.Required(at.Child("accessModes"), ""))
	} else {
		errs = append(errs, podspec.ValidateAccessModes(v.AccessModes, at.Child("accessModes"))...)
	}
	policy := v.PersistentVolumeReclaimPolicy
	forbid(policy != "" && policy != corev1.PersistentVolumeReclaimRetain, "persistentVolumeReclaimPolicy", "may only be Retain")
	forbid(v.NodeAffinity != nil, "nodeAffinity", "may not be specified")
	source := *v
	source.NodeAffinity = nil // it is forbidden, so a local volume lacks it
	errs = append(errs, podspec.ValidatePersistentVolumeSource(&source, at)...)
	forbid(v.StorageClassName != "", "storageClassName", "may not be specified")
	mode := ptr.Deref(v.VolumeMode, corev1.PersistentVolumeFilesystem)
	forbid(mode != corev1.PersistentVolumeFilesystem, "volumeMode", "may not specify volumeMode other than Filesystem")
	return errs
}

func validateAttachmentStatus(a, _ *storagev1.VolumeAttachment) field.ErrorList {
	status := field.NewPath("status")
	errs := append(
		validateVolumeError(a.Status.AttachError, status.Child("attachError")),
		validateVolumeError(a.Status.DetachError, status.Child("detachError"))...)
	if sizeOf(a.Status.AttachmentMetadata) > maxAttachmentMetadata {
		errs = append(errs, field.TooLong(status.Child("attachmentMetadata"), "", maxAttachmentMetadata))
	}
	return errs
}

func validateVolumeError(e *storagev1.VolumeError, at *field.Path) field.ErrorList {
	if e == nil {
		return nil
	}
	var errs field.ErrorList
	errs = append(errs, validate.MaxBytes(e.Message, at.Child("message"), maxVolumeError)...)
	if e.ErrorCode != nil && *e.ErrorCode < 0 {
		errs = append(errs, field.Invalid(at.Child("errorCode"), *e.ErrorCode, "must be between 0 and 2147483647, inclusive"))
	}
	return errs
}

// sizeOf returns the number of bytes of the keys and values of a map.
func sizeOf(m map[string]string) int {
	size := 0
	for key, value := range m {
		size += len(key) + len(value)
	}
	return size
}
