package podspec

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// DefaultVolumeClaim also serves the claim templates of StatefulSets.
func DefaultVolumeClaim(c *corev1.PersistentVolumeClaim) {
	registry.SetDefault(&c.Status.Phase, corev1.ClaimPending)
	registry.SetDefaultPtr(&c.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
}

func ValidateVolumeClaimSpec(s *corev1.PersistentVolumeClaimSpec, spec *field.Path) field.ErrorList {
	errs := append(
		ValidateAccessModes(s.AccessModes, spec.Child("accessModes")),
		validate.OneOfPtr(s.VolumeMode, spec.Child("volumeMode"), corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem)...)
	errs = append(errs, validate.OptionalLabelSelector(s.Selector, spec.Child("selector"))...)
	errs = append(errs, validate.OptionalSubdomain(ptr.Deref(s.StorageClassName, ""), spec.Child("storageClassName"))...)
	errs = append(errs, validate.OptionalSubdomain(ptr.Deref(s.VolumeAttributesClassName, ""), spec.Child("volumeAttributesClassName"))...)
	if source := s.DataSource; source != nil {
		errs = append(errs, validate.Required(source.Name, spec.Child("dataSource", "name"))...)
		errs = append(errs, validate.Required(source.Kind, spec.Child("dataSource", "kind"))...)
	}
	if source := s.DataSourceRef; source != nil {
		errs = append(errs, validate.Required(source.Name, spec.Child("dataSourceRef", "name"))...)
		errs = append(errs, validate.Required(source.Kind, spec.Child("dataSourceRef", "kind"))...)
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

func ValidateAccessModes(modes []corev1.PersistentVolumeAccessMode, path *field.Path) field.ErrorList {
	if len(modes) == 0 {
		return field.ErrorList{field.Required(path, "at least 1 access mode is required")}
	}
	var errs field.ErrorList
	if len(modes) > 1 && slices.Contains(modes, corev1.ReadWriteOncePod) {
		errs = append(errs, field.Forbidden(path, "may not use ReadWriteOncePod with other access modes"))
	}
	for _, mode := range modes {
		errs = append(errs, validate.OneOf(mode, path,
			corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce, corev1.ReadWriteOncePod)...)
	}
	return errs
}
