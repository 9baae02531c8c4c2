package podspec

import (
	"cmp"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// validateVolumes checks the volumes of a pod or of a template. It returns the valid volumes by name:
// for mounts, the others count as absent.
func validateVolumes(volumes []corev1.Volume, path *field.Path) (map[string]*corev1.Volume, field.ErrorList) {
	valid := map[string]*corev1.Volume{}
	errs := validate.Each(volumes, path, func(v *corev1.Volume, at *field.Path) field.ErrorList {
		errs := append(validateSources(&v.VolumeSource, at), validate.RequiredLabel(v.Name, at.Child("name"))...)
		if v.Image != nil && len(sourcesOf(&v.VolumeSource)) == 1 {
			errs = append(errs, validate.Required(v.Image.Reference, at.Child("image", "reference"))...)
		}
		if valid[v.Name] != nil {
			errs = append(errs, field.Duplicate(at.Child("name"), v.Name))
		}
		if len(errs) == 0 {
			valid[v.Name] = v
		}
		return errs
	})
	return valid, errs
}

// allSources returns the sources of a volume in the order in which upstream counts them.
func allSources() []string {
	return []string{
		"emptyDir", "hostPath", "gitRepo", "gcePersistentDisk", "awsElasticBlockStore", "secret", "nfs", "iscsi", "glusterfs", "flocker",
		"persistentVolumeClaim", "rbd", "cinder", "cephfs", "quobyte", "downwardAPI", "fc", "flexVolume", "configMap", "azureFile",
		"vsphereVolume", "photonPersistentDisk", "portworxVolume", "azureDisk", "storageos", "projected", "scaleIO", "csi", "ephemeral", "image",
	}
}

// validateSources checks that a volume has one source, and that it is valid. Of several, the first one is checked, and
// the others are too many.
func validateSources(v *corev1.VolumeSource, at *field.Path) field.ErrorList {
	sources := sourcesOf(v)
	if len(sources) == 0 {
		return field.ErrorList{field.Required(at, "must specify a volume type")}
	}
	order := allSources()
	slices.SortFunc(sources, func(a, b string) int { return slices.Index(order, a) - slices.Index(order, b) })
	first := *v
	validate.UnsetMembers(&first, sources[1:])
	errs := append(validateOwnSource(&first, at), validateForeignSource(&first, at)...)
	upstreams := map[string]string{"downwardAPI": "downwarAPI", "cephfs": "cephFS"} // the names of these fields in upstream's errors
	for _, extra := range sources[1:] {
		errs = append(errs, field.Forbidden(at.Child(cmp.Or(upstreams[extra], extra)), "may not specify more than 1 volume type"))
	}
	return errs
}

// validateOwnSource checks volume sources that the API server and the node provide.
func validateOwnSource(v *corev1.VolumeSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s := v.EmptyDir; s != nil && s.SizeLimit != nil && s.SizeLimit.Sign() < 0 {
		errs = append(errs, field.Forbidden(at.Child("emptyDir", "sizeLimit"), "SizeLimit field must be a valid resource quantity"))
	}
	if s := v.HostPath; s != nil {
		errs = append(errs, ValidateHostPath(s, at.Child("hostPath"))...)
	}
	if s := v.Secret; s != nil {
		at := at.Child("secret")
		errs = append(errs, validate.Required(s.SecretName, at.Child("secretName"))...)
		errs = append(errs, validateMode(s.DefaultMode, at.Child("defaultMode"))...)
		errs = append(errs, validate.Each(s.Items, at.Child("items"), validateKeyToPath)...)
	}
	if s := v.ConfigMap; s != nil {
		at := at.Child("configMap")
		errs = append(errs, validate.Required(s.Name, at.Child("name"))...)
		errs = append(errs, validateMode(s.DefaultMode, at.Child("defaultMode"))...)
		errs = append(errs, validate.Each(s.Items, at.Child("items"), validateKeyToPath)...)
	}
	if s := v.DownwardAPI; s != nil {
		at := at.Child("downwardAPI")
		errs = append(errs, validateMode(s.DefaultMode, at.Child("defaultMode"))...)
		errs = append(errs, validateDownwardFiles(s.Items, at)...)
	}
	if s := v.Projected; s != nil {
		at := at.Child("projected")
		errs = append(errs, validateMode(s.DefaultMode, at.Child("defaultMode"))...)
		for i := range s.Sources {
			errs = append(errs, validateProjection(&s.Sources[i], at.Child("sources").Index(i), at)...)
		}
		errs = append(errs, validateDistinctPaths(s.Sources, at)...)
	}
	return errs
}

// ValidateHostPath validates a hostPath volume, of a pod or a PersistentVolume.
func ValidateHostPath(s *corev1.HostPathVolumeSource, at *field.Path) field.ErrorList {
	if s.Path == "" {
		return validate.Required(s.Path, at.Child("path"))
	}
	return append(ValidateNoBacksteps(s.Path, at.Child("path")), validate.OneOfPtr(s.Type, at.Child("type"), corev1.HostPathUnset,
		corev1.HostPathBlockDev, corev1.HostPathCharDev, corev1.HostPathDirectory, corev1.HostPathDirectoryOrCreate,
		corev1.HostPathFile, corev1.HostPathFileOrCreate, corev1.HostPathSocket)...)
}

// validateMode checks the permission bits of a file.
func validateMode(mode *int32, at *field.Path) field.ErrorList {
	if mode == nil || (*mode >= 0 && *mode <= 0o777) {
		return nil
	}
	return field.ErrorList{field.Invalid(at, *mode, "must be a number between 0 and 0777 (octal), both inclusive")}
}

func validateKeyToPath(item *corev1.KeyToPath, at *field.Path) field.ErrorList {
	return slices.Concat(
		validate.Required(item.Key, at.Child("key")),
		requiredRelativePath(item.Path, at.Child("path")),
		validateMode(item.Mode, at.Child("mode")),
	)
}

func requiredRelativePath(p string, at *field.Path) field.ErrorList {
	if p == "" {
		return validate.Required(p, at)
	}
	return localPath(p, at)
}

// localPath checks the path of a file in a volume.
func localPath(p string, at *field.Path) field.ErrorList {
	errs := relativePath(p, at)
	if strings.HasPrefix(p, "..") && !strings.HasPrefix(p, "../") { // the node writes such names itself
		errs = append(errs, field.Invalid(at, p, "must not start with '..'"))
	}
	return errs
}

// validateForeignSource checks volume sources that other servers provide. In-tree cloud
// providers, which CSI drivers have replaced, are known by name only.
func validateForeignSource(v *corev1.VolumeSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s := v.PersistentVolumeClaim; s != nil {
		errs = append(errs, validate.Required(s.ClaimName, at.Child("persistentVolumeClaim", "claimName"))...)
	}
	if s := v.Ephemeral; s != nil {
		template := at.Child("ephemeral", "volumeClaimTemplate")
		if s.VolumeClaimTemplate == nil {
			errs = append(errs, field.Required(template, ""))
		} else {
			errs = append(errs, ValidateClaimTemplateMeta(&s.VolumeClaimTemplate.ObjectMeta, template.Child("metadata"))...)
			errs = append(errs, ValidateVolumeClaimSpec(&s.VolumeClaimTemplate.Spec, nil, template.Child("spec"))...)
		}
	}
	if s := v.NFS; s != nil {
		errs = append(errs, ValidateNFS(s, at.Child("nfs"))...)
	}
	if s := v.CSI; s != nil {
		errs = append(errs, ValidateDriverName(s.Driver, at.Child("csi", "driver"))...)
		if s.NodePublishSecretRef != nil {
			errs = append(errs, validate.Required(s.NodePublishSecretRef.Name, at.Child("csi", "nodePublishSecretRef", "name"))...)
			errs = append(errs, validate.OptionalSubdomain(s.NodePublishSecretRef.Name, at.Child("csi", "name"))...) // Kubernetes names it like this
		}
	}
	if s := v.Image; s != nil && s.PullPolicy != "" {
		errs = append(errs, validate.OneOf(s.PullPolicy, at.Child("image", "pullPolicy"), corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)...)
	}
	return errs
}

// ValidateNFS validates an NFS volume, of a pod or a PersistentVolume.
func ValidateNFS(s *corev1.NFSVolumeSource, at *field.Path) field.ErrorList {
	errs := append(validate.Required(s.Server, at.Child("server")), validate.Required(s.Path, at.Child("path"))...)
	if !path.IsAbs(s.Path) {
		errs = append(errs, field.Invalid(at.Child("path"), s.Path, "must be an absolute path"))
	}
	return errs
}

// maxDriverName is the maximum length of the name of a CSI driver.
const maxDriverName = 63

// ValidateDriverName validates the name of a CSI driver.
func ValidateDriverName(driver string, at *field.Path) field.ErrorList {
	if driver == "" {
		return validate.Required(driver, at)
	}
	errs := validate.FromMessages(driver, at, validation.IsDNS1123Subdomain(strings.ToLower(driver)))
	errs = append(errs, validate.MaxBytes(driver, at, maxDriverName)...)
	return errs
}
