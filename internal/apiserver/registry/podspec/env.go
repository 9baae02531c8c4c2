package podspec

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

func (c containerChecks) checkEnv(env *corev1.EnvVar, at *field.Path) field.ErrorList {
	errs := validate.Required(env.Name, at.Child("name"))
	if env.Name != "" {
		errs = validate.FromMessages(env.Name, at.Child("name"), validation.IsRelaxedEnvVarName(env.Name))
	}
	if env.ValueFrom == nil {
		return errs
	}
	source := at.Child("valueFrom")
	switch set := len(validate.SetMembers(env.ValueFrom)); {
	case env.Value != "" && set > 0:
		errs = append(errs, field.Invalid(source, "", "may not be specified when `value` is not empty"))
	case set == 0:
		errs = append(errs, field.Invalid(source, "", "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"))
	case set > 1:
		errs = append(errs, field.Invalid(source, "", "may not have more than one field specified at a time"))
	}
	return append(errs, c.checkEnvSource(env.ValueFrom, source)...)
}

func (c containerChecks) checkEnvSource(source *corev1.EnvVarSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if ref := source.FieldRef; ref != nil {
		errs = append(errs, validateFieldRef(ref, at.Child("fieldRef"), envFields())...)
	}
	if ref := source.ResourceFieldRef; ref != nil {
		errs = append(errs, validateResourceRef(ref, at.Child("resourceFieldRef"))...)
	}
	if ref := source.ConfigMapKeyRef; ref != nil {
		errs = append(errs, validateKeyRef(ref.Name, ref.Key, at.Child("configMapKeyRef"))...)
	}
	if ref := source.SecretKeyRef; ref != nil {
		errs = append(errs, validateKeyRef(ref.Name, ref.Key, at.Child("secretKeyRef"))...)
	}
	if ref := source.FileKeyRef; ref != nil {
		at := at.Child("fileKeyRef")
		errs = append(errs, validate.Required(ref.Key, at.Child("key"))...)
		if ref.Key != "" {
			errs = append(errs, validate.FromMessages(ref.Key, at.Child("key"), validation.IsRelaxedEnvVarName(ref.Key))...)
		}
		errs = append(errs, validate.Required(ref.Path, at.Child("path"))...)
		errs = append(errs, ValidateNoBacksteps(ref.Path, at.Child("path"))...)
		errs = append(errs, validate.RequiredLabel(ref.VolumeName, at.Child("volumeName"))...)
		switch volume, given := c.named[ref.VolumeName]; {
		case !given:
			errs = append(errs, field.NotFound(at.Child("volumeName"), ref.VolumeName))
		case volume.EmptyDir == nil:
			errs = append(errs, field.Invalid(at.Child("volumeName"), ref.VolumeName, "referenced volume must be of type emptyDir"))
		}
	}
	return errs
}

// validateKeyRef checks a reference to an entry of a ConfigMap or Secret.
func validateKeyRef(name, key string, at *field.Path) field.ErrorList {
	errs := validate.FromMessages(name, at.Child("name"), validation.IsDNS1123Subdomain(name))
	if key == "" {
		return append(errs, validate.Required(key, at.Child("key"))...)
	}
	return append(errs, validate.FromMessages(key, at.Child("key"), validation.IsConfigMapKey(key))...)
}

// validateEnvFrom checks the sources of environment variables. Kubernetes reports for the whole list that an element
// has no source, or more than one.
func validateEnvFrom(sources []corev1.EnvFromSource, path *field.Path) field.ErrorList {
	errs := validate.Each(sources, path, validateEnvFromSource)
	for i := range sources {
		switch len(validate.SetMembers(&sources[i])) {
		case 0:
			errs = append(errs, field.Invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"))
		case 1:
		default:
			errs = append(errs, field.Invalid(path, "", "may not have more than one field specified at a time"))
		}
	}
	return errs
}

func validateEnvFromSource(source *corev1.EnvFromSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if source.Prefix != "" {
		errs = append(errs, validate.FromMessages(source.Prefix, at.Child("prefix"), validation.IsRelaxedEnvVarName(source.Prefix))...)
	}
	if ref := source.ConfigMapRef; ref != nil {
		errs = append(errs, requiredSubdomain(ref.Name, at.Child("configMapRef", "name"))...)
	}
	if ref := source.SecretRef; ref != nil {
		errs = append(errs, requiredSubdomain(ref.Name, at.Child("secretRef", "name"))...)
	}
	return errs
}

func requiredSubdomain(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return validate.Required(name, at)
	}
	return validate.OptionalSubdomain(name, at)
}

// Fields of a pod that its containers may read. Fields that change while the pod runs can be in a volume, but not in
// the environment.

func envFields() []string {
	return []string{
		"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
		"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
	}
}

func fileFields() []string {
	return []string{"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"}
}

// unreadableFields are field labels of pods that the downward API does not offer.
func unreadableFields() []string {
	return []string{"spec.hostNetwork", "spec.restartPolicy", "spec.schedulerName", "status.phase"}
}

func validateFieldRef(ref *corev1.ObjectFieldSelector, at *field.Path, readable []string) field.ErrorList {
	path := at.Child("fieldPath")
	unknown := func(why string) field.ErrorList {
		return field.ErrorList{field.Invalid(path, ref.FieldPath, "error converting fieldPath: "+why)}
	}
	switch {
	case ref.APIVersion == "":
		return validate.Required(ref.APIVersion, at.Child("apiVersion"))
	case ref.FieldPath == "":
		return validate.Required(ref.FieldPath, path)
	case ref.APIVersion != "v1":
		return unknown("unsupported pod version: " + ref.APIVersion)
	}
	if of, key, ok := subscript(ref.FieldPath); ok {
		switch of {
		case "metadata.annotations": // the prefix of an annotation's key is not case-sensitive
			key = strings.ToLower(key)
		case "metadata.labels":
		default:
			return unknown("field label does not support subscript: " + ref.FieldPath)
		}
		return validate.FromMessages(key, at, validation.IsQualifiedName(key))
	}
	known := slices.Concat(envFields(), fileFields(), unreadableFields())
	switch {
	case !slices.Contains(known, ref.FieldPath):
		return unknown("field label not supported: " + ref.FieldPath)
	case !slices.Contains(readable, ref.FieldPath):
		return field.ErrorList{field.NotSupported(path, ref.FieldPath, readable)}
	}
	return nil
}

// subscript splits metadata.labels['key'].
func subscript(path string) (of, key string, ok bool) {
	of, rest, found := strings.Cut(path, "['")
	key, end := strings.CutSuffix(rest, "']")
	return of, key, found && end
}

func validateResourceRef(ref *corev1.ResourceFieldSelector, at *field.Path) field.ErrorList {
	path := at.Child("resource")
	switch {
	case ref.Resource == "":
		return validate.Required(ref.Resource, path)
	case !isReadable(ref.Resource):
		return field.ErrorList{field.NotSupported(path, ref.Resource, readableResources())}
	}
	return validateDivisor(ref, at.Child("divisor"))
}

func readableResources() []string {
	return []string{
		"limits.cpu", "limits.ephemeral-storage", "limits.memory",
		"requests.cpu", "requests.ephemeral-storage", "requests.memory",
	}
}

func isReadable(resource string) bool {
	return slices.Contains(readableResources(), resource) ||
		strings.HasPrefix(resource, "limits."+corev1.ResourceHugePagesPrefix) || strings.HasPrefix(resource, "requests."+corev1.ResourceHugePagesPrefix)
}

// validateDivisor checks the unit of a resource that the downward API reports.
func validateDivisor(ref *corev1.ResourceFieldSelector, at *field.Path) field.ErrorList {
	if ref.Divisor.IsZero() || !isReadable(ref.Resource) {
		return nil
	}
	_, name, _ := strings.Cut(ref.Resource, ".")
	units, what := []string{"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"}, name
	listed := strings.Join(units, ", ")
	switch {
	case name == string(corev1.ResourceCPU):
		units, listed = []string{"1m", "1"}, "1m and 1"
	case name == string(corev1.ResourceEphemeralStorage):
		what = "local ephemeral storage"
	case name != string(corev1.ResourceMemory):
		what = "hugepages"
	}
	divisor := ref.Divisor.String()
	if slices.Contains(units, divisor) {
		return nil
	}
	return field.ErrorList{field.Invalid(at, ref.Resource, fmt.Sprintf("only divisor's values %s are supported with the %s resource", listed, what))}
}
