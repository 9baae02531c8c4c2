package podspec

import (
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// DefaultVolumeClaim sets the defaults of a volume claim, also of a template of one in a StatefulSet.
func DefaultVolumeClaim(c *corev1.PersistentVolumeClaim) {
	registry.SetDefault(&c.Status.Phase, corev1.ClaimPending)
	registry.SetDefaultPtr(&c.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
}

// ValidateVolumeClaimSpec checks the spec of a volume claim or of a template of one. A claim whose stored spec, old, has a
// data source with an API group may have any group.
func ValidateVolumeClaimSpec(s, old *corev1.PersistentVolumeClaimSpec, spec *field.Path) field.ErrorList {
	errs := append(
		ValidateAccessModes(s.AccessModes, spec.Child("accessModes")),
		validate.OneOfPtr(s.VolumeMode, spec.Child("volumeMode"), corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem)...)
	errs = append(errs, validate.OptionalLabelSelector(s.Selector, spec.Child("selector"))...)
	errs = append(errs, validate.OptionalSubdomain(ptr.Deref(s.StorageClassName, ""), spec.Child("storageClassName"))...)
	errs = append(errs, validate.OptionalSubdomain(ptr.Deref(s.VolumeAttributesClassName, ""), spec.Child("volumeAttributesClassName"))...)
	anyGroup := old != nil && (old.DataSource != nil && old.DataSource.APIGroup != nil || old.DataSourceRef != nil && old.DataSourceRef.APIGroup != nil)
	if source := s.DataSource; source != nil {
		errs = append(errs, validateDataSource(source, anyGroup, spec.Child("dataSource"))...)
	}
	if source := s.DataSourceRef; source != nil {
		local := &corev1.TypedLocalObjectReference{APIGroup: source.APIGroup, Kind: source.Kind, Name: source.Name}
		errs = append(errs, validateDataSource(local, anyGroup, spec.Child("dataSourceRef"))...)
		errs = append(errs, validate.OptionalLabel(ptr.Deref(source.Namespace, ""), spec.Child("dataSourceRef", "namespace"))...)
	}
	if source, ref := s.DataSource, s.DataSourceRef; source != nil && ref != nil {
		switch {
		case ptr.Deref(ref.Namespace, "") != "":
			errs = append(errs, field.Invalid(spec, spec.Child("dataSource"), "may not be specified when dataSourceRef.namespace is specified"))
		case !equality.Semantic.DeepEqual(source.APIGroup, ref.APIGroup) || source.Kind != ref.Kind || source.Name != ref.Name:
			errs = append(errs, field.Invalid(spec, spec.Child("dataSource"), "must match dataSourceRef"))
		}
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

// NormalizeDataSources brings dataSource and dataSourceRef into agreement. The older dataSource accepts only volume
// claims and snapshots; it drops any other source without an error, for clients that know only this field. It also
// drops a dataSourceRef with a namespace: its feature gate is off by default.
func NormalizeDataSources(s, old *corev1.PersistentVolumeClaimSpec) {
	if ref := s.DataSourceRef; ref != nil && ptr.Deref(ref.Namespace, "") != "" && (old == nil || old.DataSourceRef == nil) {
		s.DataSourceRef = nil
	}
	if s.DataSource != nil && s.DataSourceRef == nil && (old == nil || old.DataSource == nil) && !isClaimOrSnapshot(s.DataSource) {
		s.DataSource = nil
	}
	switch source, ref := s.DataSource, s.DataSourceRef; {
	case source != nil && ref == nil:
		s.DataSourceRef = &corev1.TypedObjectReference{APIGroup: source.APIGroup, Kind: source.Kind, Name: source.Name}
	case source == nil && ref != nil && ptr.Deref(ref.Namespace, "") == "":
		s.DataSource = &corev1.TypedLocalObjectReference{APIGroup: ref.APIGroup, Kind: ref.Kind, Name: ref.Name}
	}
}

func isClaimOrSnapshot(source *corev1.TypedLocalObjectReference) bool {
	group := ptr.Deref(source.APIGroup, "")
	return group == "" && source.Kind == "PersistentVolumeClaim" || group == "snapshot.storage.k8s.io" && source.Kind == "VolumeSnapshot"
}

// ValidateClaimTemplateMeta checks the metadata of a template of volume or resource claims: it may have only labels and
// annotations.
func ValidateClaimTemplateMeta(m *metav1.ObjectMeta, path *field.Path) field.ErrorList {
	errs := apivalidation.ValidateAnnotations(m.Annotations, path.Child("annotations"))
	errs = append(errs, metav1validation.ValidateLabels(m.Labels, path.Child("labels"))...)
	others := m.DeepCopy()
	others.Annotations, others.Labels = nil, nil
	fields := reflect.ValueOf(others).Elem()
	for i := range fields.NumField() {
		if f := fields.Field(i); !f.IsZero() {
			name := fields.Type().Field(i).Name
			errs = append(errs, field.Forbidden(path.Child(strings.ToLower(name[:1])+name[1:]), "cannot be set"))
		}
	}
	return errs
}

// validateDataSource checks the source of a volume's data. Without a group it can only be another volume claim.
func validateDataSource(s *corev1.TypedLocalObjectReference, anyGroup bool, path *field.Path) field.ErrorList {
	errs := append(validate.Required(s.Name, path.Child("name")), validate.Required(s.Kind, path.Child("kind"))...)
	switch group := ptr.Deref(s.APIGroup, ""); {
	case group == "" && s.Kind != "PersistentVolumeClaim":
		errs = append(errs, field.Invalid(path, s.Kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup"))
	case group != "" && !anyGroup:
		errs = append(errs, validate.FromMessages(group, path.Child("apiGroup"), validation.IsDNS1123Subdomain(group))...)
	}
	return errs
}

// ValidateAccessModes checks the access modes of a volume or of a volume claim.
func ValidateAccessModes(modes []corev1.PersistentVolumeAccessMode, path *field.Path) field.ErrorList {
	if len(modes) == 0 {
		return field.ErrorList{field.Required(path, "at least 1 access mode is required")}
	}
	var errs field.ErrorList
	shared := []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce}
	isShared := func(mode corev1.PersistentVolumeAccessMode) bool { return slices.Contains(shared, mode) }
	if slices.ContainsFunc(modes, isShared) && slices.Contains(modes, corev1.ReadWriteOncePod) {
		errs = append(errs, field.Forbidden(path, "may not use ReadWriteOncePod with other access modes"))
	}
	for _, mode := range modes {
		errs = append(errs, validate.OneOfPtr(&mode, path, append(shared, corev1.ReadWriteOncePod)...)...)
	}
	return errs
}
