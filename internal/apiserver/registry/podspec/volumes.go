package podspec

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// validateVolumes checks the volumes. It returns those that are valid by their names: the others
// count as absent where they are mounted.
func validateVolumes(volumes []corev1.Volume, path *field.Path) (map[string]*corev1.Volume, field.ErrorList) {
	valid := map[string]*corev1.Volume{}
	errs := validate.Each(volumes, path, func(v *corev1.Volume, at *field.Path) field.ErrorList {
		errs := append(validateSources(&v.VolumeSource, at), validate.RequiredLabel(v.Name, at.Child("name"))...)
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

// validateSources checks that a volume has one source, and that it is valid.
func validateSources(v *corev1.VolumeSource, at *field.Path) field.ErrorList {
	sources := sourcesOf(v)
	if len(sources) == 0 {
		return field.ErrorList{field.Required(at, "must specify a volume type")}
	}
	if len(sources) == 1 {
		return append(validateOwnSource(v, at), validateForeignSource(v, at)...)
	}
	// The first is the one that counts; hostPath and emptyDir change places in the type.
	first := sources[0]
	if v.EmptyDir != nil {
		first = "emptyDir"
	}
	var errs field.ErrorList
	for _, extra := range sources {
		if extra != first {
			errs = append(errs, field.Forbidden(at.Child(extra), "may not specify more than 1 volume type"))
		}
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
	}
	return errs
}

// ValidateHostPath validates a hostPath volume, of a pod or a PersistentVolume.
func ValidateHostPath(s *corev1.HostPathVolumeSource, at *field.Path) field.ErrorList {
	errs := validate.Required(s.Path, at.Child("path"))
	errs = append(errs, ValidateNoBacksteps(s.Path, at.Child("path"))...)
	if ptr.Deref(s.Type, corev1.HostPathUnset) == corev1.HostPathUnset {
		return errs
	}
	return append(errs, validate.OneOfPtr(s.Type, at.Child("type"),
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
	return relativePath(p, at)
}

// validateDownwardFiles checks the files of the downward API. Kubernetes reports errors for the
// volume, not for the file.
func validateDownwardFiles(files []corev1.DownwardAPIVolumeFile, volume *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range files {
		errs = append(errs, validateDownwardFile(&files[i], volume)...)
	}
	return errs
}

func validateDownwardFile(file *corev1.DownwardAPIVolumeFile, at *field.Path) field.ErrorList {
	errs := append(requiredRelativePath(file.Path, at.Child("path")), validateMode(file.Mode, at.Child("mode"))...)
	switch {
	case file.FieldRef != nil && file.ResourceFieldRef != nil:
		errs = append(errs, field.Invalid(at, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously"))
	case file.FieldRef != nil:
		errs = append(errs, validateFieldRef(file.FieldRef, at.Child("fieldRef"), fileFields())...)
	case file.ResourceFieldRef != nil:
		at := at.Child("resourceFieldRef")
		errs = append(errs, validate.Required(file.ResourceFieldRef.ContainerName, at.Child("containerName"))...)
		errs = append(errs, validateResourceRef(file.ResourceFieldRef, at)...)
	default:
		errs = append(errs, field.Required(at, "one of fieldRef and resourceFieldRef is required"))
	}
	return errs
}

// Bounds of the lifetime of a projected token, in seconds.
const (
	minTokenSeconds = 10 * 60
	maxTokenSeconds = 1 << 32
)

// validateProjection checks a source of the volume at the path volume, for which Kubernetes reports
// the paths of tokens.
func validateProjection(p *corev1.VolumeProjection, at, volume *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(validate.SetMembers(p)) > 1 {
		errs = append(errs, field.Forbidden(at, "may not specify more than 1 volume type per source"))
	}
	if s := p.Secret; s != nil {
		errs = append(errs, validate.Required(s.Name, at.Child("secret", "name"))...)
		errs = append(errs, validate.Each(s.Items, at.Child("secret", "items"), validateKeyToPath)...)
	}
	if s := p.ConfigMap; s != nil {
		errs = append(errs, validate.Required(s.Name, at.Child("configMap", "name"))...)
		errs = append(errs, validate.Each(s.Items, at.Child("configMap", "items"), validateKeyToPath)...)
	}
	if s := p.DownwardAPI; s != nil {
		errs = append(errs, validateDownwardFiles(s.Items, at.Child("downwardAPI"))...)
	}
	if s := p.ServiceAccountToken; s != nil {
		at := at.Child("serviceAccountToken")
		errs = append(errs, requiredRelativePath(s.Path, volume.Child("path"))...)
		switch seconds := ptr.Deref(s.ExpirationSeconds, minTokenSeconds); {
		case seconds < minTokenSeconds:
			errs = append(errs, field.Invalid(at.Child("expirationSeconds"), seconds, "may not specify a duration less than 10 minutes"))
		case seconds > maxTokenSeconds:
			errs = append(errs, field.Invalid(at.Child("expirationSeconds"), seconds, "may not specify a duration larger than 2^32 seconds"))
		}
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
			errs = append(errs, validateClaimTemplateMeta(&s.VolumeClaimTemplate.ObjectMeta, template.Child("metadata"))...)
			errs = append(errs, ValidateVolumeClaimSpec(&s.VolumeClaimTemplate.Spec, template.Child("spec"))...)
		}
	}
	if s := v.NFS; s != nil {
		errs = append(errs, ValidateNFS(s, at.Child("nfs"))...)
	}
	if s := v.CSI; s != nil {
		errs = append(errs, ValidateDriverName(s.Driver, at.Child("csi", "driver"))...)
		if s.NodePublishSecretRef != nil {
			errs = append(errs, validate.Required(s.NodePublishSecretRef.Name, at.Child("csi", "nodePublishSecretRef", "name"))...)
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
	switch {
	case driver == "":
		return validate.Required(driver, at)
	case len(driver) > maxDriverName:
		return field.ErrorList{field.TooLong(at, driver, maxDriverName)}
	}
	return validate.FromMessages(driver, at, validation.IsDNS1123Subdomain(strings.ToLower(driver)))
}
