package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// checkDevices checks the volumes that a container has as block devices.
func (c containerChecks) checkDevices(container *corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	paths, names := map[string]bool{}, map[string]bool{}
	mounts := map[string]string{} // of a volume that is mounted at several paths, upstream compares the last one
	for _, mount := range container.VolumeMounts {
		mounts[mount.Name] = mount.MountPath
	}
	taken := pathsTaken(mounts)
	for i, device := range container.VolumeDevices {
		at := path.Index(i)
		errs = append(errs, validate.Required(device.Name, at.Child("name"))...)
		if names[device.Name] {
			errs = append(errs, field.Invalid(at.Child("name"), device.Name, "must be unique"))
		}
		switch volume := c.volumes[device.Name]; {
		case volume == nil:
			errs = append(errs, field.NotFound(at.Child("name"), device.Name))
		case volume.PersistentVolumeClaim == nil && volume.Ephemeral == nil:
			errs = append(errs, field.Invalid(at.Child("name"), device.Name, "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"))
		}
		if _, mounted := mounts[device.Name]; mounted {
			errs = append(errs, field.Invalid(at.Child("name"), device.Name, "must not already exist in volumeMounts"))
		}
		errs = append(errs, validate.Required(device.DevicePath, at.Child("devicePath"))...)
		if paths[device.DevicePath] {
			errs = append(errs, field.Invalid(at.Child("devicePath"), device.DevicePath, "must be unique"))
		}
		if taken[device.DevicePath] {
			errs = append(errs, field.Invalid(at.Child("devicePath"), device.DevicePath, "must not already exist as a path in volumeMounts"))
		}
		if len(ValidateNoBacksteps(device.DevicePath, at)) > 0 {
			errs = append(errs, field.Invalid(at.Child("devicePath"), device.DevicePath, "can not contain backsteps ('..')"))
		} else {
			paths[device.DevicePath] = true
		}
		names[device.Name] = device.Name != ""
	}
	return errs
}
