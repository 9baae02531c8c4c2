package podspec

import (
	"cmp"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// persistentSources returns the sources of persistent volumes in the order in which upstream counts them.
func persistentSources() []string {
	return []string{
		"hostPath", "gcePersistentDisk", "awsElasticBlockStore", "glusterfs", "flocker", "nfs", "rbd", "quobyte", "cephfs", "iscsi", "cinder", "fc",
		"flexVolume", "azureFile", "vsphereVolume", "photonPersistentDisk", "portworxVolume", "azureDisk", "scaleIO", "local", "storageos", "csi",
	}
}

// ValidatePersistentVolumeSource checks that a persistent volume, or one that an attachment has in its spec, has one source.
// Of several, the first one is checked, and the others are too many, except flexVolume.
func ValidatePersistentVolumeSource(v *corev1.PersistentVolumeSpec, spec *field.Path) field.ErrorList {
	sources := validate.SetMembers(&v.PersistentVolumeSource)
	if len(sources) == 0 {
		return field.ErrorList{field.Required(spec, "must specify a volume type")}
	}
	order := persistentSources()
	slices.SortFunc(sources, func(a, b string) int { return slices.Index(order, a) - slices.Index(order, b) })
	var errs field.ErrorList
	for i, source := range sources {
		switch {
		case source == "flexVolume":
			errs = append(errs, validate.Required(v.FlexVolume.Driver, spec.Child("flexVolume", "driver"))...)
		case i > 0:
			name := cmp.Or(map[string]string{"cephfs": "cephFS"}[source], source) // errors use another name
			errs = append(errs, field.Forbidden(spec.Child(name), "may not specify more than 1 volume type"))
		default:
			errs = append(errs, validatePersistentSource(v, source, spec)...)
		}
	}
	return errs
}

// validatePersistentSource checks the source of a volume. In-tree cloud providers, which CSI
// drivers have replaced, are known by name only.
func validatePersistentSource(v *corev1.PersistentVolumeSpec, source string, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch source {
	case "hostPath":
		s := v.HostPath
		errs = append(errs, ValidateHostPath(s, spec.Child("hostPath"))...)
		if path.Clean(s.Path) == "/" && v.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
			errs = append(errs, field.Forbidden(spec.Child("persistentVolumeReclaimPolicy"), "may not be 'recycle' for a hostPath mount of '/'"))
		}
	case "local":
		s := v.Local
		errs = append(errs, validate.Required(s.Path, spec.Child("local", "path"))...)
		errs = append(errs, ValidateNoBacksteps(s.Path, spec.Child("local", "path"))...)
		if v.NodeAffinity == nil {
			errs = append(errs, field.Required(spec.Child("nodeAffinity"), "Local volume requires node affinity"))
		}
	case "nfs":
		errs = append(errs, ValidateNFS(v.NFS, spec.Child("nfs"))...)
	case "csi":
		s := v.CSI
		errs = append(errs, ValidateDriverName(s.Driver, spec.Child("csi", "driver"))...)
		errs = append(errs, validate.Required(s.VolumeHandle, spec.Child("csi", "volumeHandle"))...)
		errs = append(errs, validateDriverSecrets(s, spec.Child("csi"))...)
	}
	return errs
}

// validateDriverSecrets checks the Secrets that a driver needs. Like upstream, it skips nodeStageSecretRef.
func validateDriverSecrets(s *corev1.CSIPersistentVolumeSource, csi *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, secret := range []struct {
		name string
		ref  *corev1.SecretReference
	}{
		{"controllerPublishSecretRef", s.ControllerPublishSecretRef},
		{"controllerExpandSecretRef", s.ControllerExpandSecretRef},
		{"nodePublishSecretRef", s.NodePublishSecretRef},
		{"nodeExpandSecretRef", s.NodeExpandSecretRef},
	} {
		if secret.ref == nil {
			continue
		}
		name, namespace := csi.Child(secret.name, "name"), csi.Child(secret.name, "namespace")
		errs = append(errs, validate.Required(secret.ref.Name, name)...)
		errs = append(errs, validate.OptionalSubdomain(secret.ref.Name, name)...)
		errs = append(errs, validate.Required(secret.ref.Namespace, namespace)...)
		errs = append(errs, validate.OptionalLabel(secret.ref.Namespace, namespace)...)
	}
	return errs
}
