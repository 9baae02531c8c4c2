package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

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
		if file.ResourceFieldRef.ContainerName == "" {
			errs = append(errs, field.Required(at.Child("containerName"), ""))
			return append(errs, validateDivisor(file.ResourceFieldRef, at.Child("divisor"))...)
		}
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

// validateProjection checks a source of a projected volume. Kubernetes reports the paths of tokens for the volume.
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
	if s := p.ClusterTrustBundle; s != nil {
		errs = append(errs, validateTrustBundle(s, at.Child("clusterTrustBundle"))...)
	}
	if s := p.PodCertificate; s != nil {
		errs = append(errs, validatePodCertificate(s, at.Child("podCertificate"))...)
	}
	return errs
}

// validateOwnTokens checks that a pod without a service account requests no token.
func validateOwnTokens(pod *corev1.Pod, volumes *field.Path) field.ErrorList {
	if pod.Spec.ServiceAccountName != "" {
		return nil
	}
	return validate.Each(pod.Spec.Volumes, volumes, func(v *corev1.Volume, at *field.Path) field.ErrorList {
		if v.Projected == nil {
			return nil
		}
		return validate.Each(v.Projected.Sources, at.Child("projected", "sources"), func(p *corev1.VolumeProjection, at *field.Path) field.ErrorList {
			if p.ServiceAccountToken == nil {
				return nil
			}
			return field.ErrorList{field.Forbidden(at.Child("serviceAccountToken"), "must not be specified when serviceAccountName is not set")}
		})
	})
}

// validateDistinctPaths checks that no two files of a projected volume have the same path. The error names the object
// of the second file, as in Kubernetes.
func validateDistinctPaths(sources []corev1.VolumeProjection, volume *field.Path) field.ErrorList {
	var errs field.ErrorList
	taken := map[string]bool{}
	for _, source := range sources {
		for _, file := range pathsOf(source) {
			if taken[file.path] {
				errs = append(errs, field.Invalid(volume, file.from, "conflicting duplicate paths"))
			}
			taken[file.path] = true
		}
	}
	return errs
}

// projectedFile is a file of a projected volume.
type projectedFile struct{ path, from string }

// pathsOf returns the files of a source, with the object that errors name. Paths that are absent are not among them,
// except that of a trust bundle, as in Kubernetes.
func pathsOf(source corev1.VolumeProjection) []projectedFile {
	var files []projectedFile
	add := func(path, from string) {
		if path != "" {
			files = append(files, projectedFile{path, from})
		}
	}
	if source.Secret != nil {
		for _, item := range source.Secret.Items {
			add(item.Path, source.Secret.Name)
		}
	}
	if source.ConfigMap != nil {
		for _, item := range source.ConfigMap.Items {
			add(item.Path, source.ConfigMap.Name)
		}
	}
	if source.DownwardAPI != nil {
		for _, file := range source.DownwardAPI.Items {
			add(file.Path, file.Path)
		}
	}
	if source.ClusterTrustBundle != nil {
		files = append(files, projectedFile{source.ClusterTrustBundle.Path, source.ClusterTrustBundle.Path})
	}
	if source.PodCertificate != nil {
		for _, path := range filesOf(source.PodCertificate) {
			add(path, path)
		}
	}
	return files
}
