package podspec

import (
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateEphemeralContainers checks the containers that were added to debug a pod, against its
// other containers.
func ValidateEphemeralContainers(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	volumes, _ := validateVolumes(spec.Volumes, path)
	return newContainerChecks(spec, volumes).checkEphemeral(path)
}

func (c containerChecks) checkEphemeral(path *field.Path) field.ErrorList {
	spec := c.spec
	targets := map[string]bool{}
	for _, other := range slices.Concat(spec.Containers, spec.InitContainers) {
		c.names[other.Name], targets[other.Name] = true, true
	}
	var errs field.ErrorList
	for i := range spec.EphemeralContainers {
		e := &spec.EphemeralContainers[i]
		at := path.Index(i)
		errs = append(errs, c.checkName(e.Name, at.Child("name"))...)
		errs = append(errs, c.checkCommon((*corev1.Container)(&e.EphemeralContainerCommon), at)...)
		errs = append(errs, validateImageName((*corev1.Container)(&e.EphemeralContainerCommon), at)...)
		if e.TargetContainerName != "" && !targets[e.TargetContainerName] {
			errs = append(errs, field.NotFound(at.Child("targetContainerName"), e.TargetContainerName))
		}
		errs = append(errs, forbidService(&e.EphemeralContainerCommon, at)...)
	}
	return errs
}

// forbidService refuses fields that make sense only for a container that serves: an ephemeral container ends with the
// debugging. A subpath would leave a mount behind until the pod ends.
func forbidService(c *corev1.EphemeralContainerCommon, at *field.Path) field.ErrorList {
	const text = "cannot be set for an Ephemeral Container"
	may := []string{
		"Name", "Image", "Command", "Args", "WorkingDir", "EnvFrom", "Env", "VolumeMounts", "VolumeDevices", "TerminationMessagePath",
		"TerminationMessagePolicy", "ImagePullPolicy", "SecurityContext", "Stdin", "StdinOnce", "TTY",
	}
	var errs field.ErrorList
	fields := reflect.ValueOf(c).Elem()
	for i := range fields.NumField() {
		f := fields.Type().Field(i)
		if slices.Contains(may, f.Name) || fields.Field(i).IsZero() {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		errs = append(errs, field.Forbidden(at.Child(name), text))
	}
	for i, mount := range c.VolumeMounts {
		if mount.SubPath != "" {
			errs = append(errs, field.Forbidden(at.Child("volumeMounts").Index(i).Child("subPath"), text))
		}
		if mount.SubPathExpr != "" {
			errs = append(errs, field.Forbidden(at.Child("volumeMounts").Index(i).Child("subPathExpr"), text))
		}
	}
	return errs
}
