package podspec

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// validatePodSecurity checks the user of a pod, and its isolation from its node. The node checks the values that depend
// on its kernel.
func validatePodSecurity(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if ptr.Deref(spec.ShareProcessNamespace, false) && spec.HostPID {
		errs = append(errs, field.Invalid(path.Child("shareProcessNamespace"), true, "ShareProcessNamespace and HostPID cannot both be enabled"))
	}
	if spec.OS != nil {
		errs = append(errs, validateOS(spec.OS.Name, path.Child("os"))...)
	}
	if !ptr.Deref(spec.HostUsers, true) {
		errs = append(errs, validateOwnUsers(spec, path)...)
	}
	errs = slices.Concat(errs, validateSystemSettings(spec, path), validateHostProcess(spec, path))
	s, at := spec.SecurityContext, path.Child("securityContext")
	if s == nil {
		return errs
	}
	return slices.Concat(errs,
		userID(s.RunAsUser, at.Child("runAsUser")),
		groupID(s.RunAsGroup, at.Child("runAsGroup")),
		groupID(s.FSGroup, at.Child("fsGroup")),
		validate.Each(s.SupplementalGroups, at.Child("supplementalGroups"), validGroup),
		validate.OneOfPtr(s.FSGroupChangePolicy, at.Child("fsGroupChangePolicy"), corev1.FSGroupChangeAlways, corev1.FSGroupChangeOnRootMismatch),
		validate.OneOfPtr(s.SupplementalGroupsPolicy, at.Child("supplementalGroupsPolicy"), corev1.SupplementalGroupsPolicyMerge, corev1.SupplementalGroupsPolicyStrict),
		validate.NoDuplicates(s.Sysctls, at.Child("sysctls"), func(c corev1.Sysctl) string { return c.Name }, "name"),
		validate.Each(s.Sysctls, at.Child("sysctls"), func(c *corev1.Sysctl, at *field.Path) field.ErrorList {
			return validate.Required(c.Name, at.Child("name"))
		}),
		validate.OneOfPtr(s.SELinuxChangePolicy, at.Child("seLinuxChangePolicy"), corev1.SELinuxChangePolicyMountOption, corev1.SELinuxChangePolicyRecursive),
		validateSeccomp(s.SeccompProfile, at.Child("seccompProfile")),
		validateAppArmor(s.AppArmorProfile, at.Child("appArmorProfile")),
		validateWindowsOptions(s.WindowsOptions, at.Child("windowsOptions")),
	)
}

// validateOwnUsers checks a pod with a user namespace of its own: it cannot share the node's other namespaces, nor have
// block devices, which would keep their owners.
func validateOwnUsers(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	const text = "when `hostUsers` is false"
	var errs field.ErrorList
	for _, f := range []struct {
		name string
		set  bool
	}{{"hostNetwork", spec.HostNetwork}, {"HostPID", spec.HostPID}, {"HostIPC", spec.HostIPC}} {
		if f.set {
			errs = append(errs, field.Forbidden(path.Child(f.name), text))
		}
	}
	noDevices := func(devices []corev1.VolumeDevice, at *field.Path) {
		if len(devices) > 0 {
			errs = append(errs, field.Forbidden(at.Child("volumeDevices"), text))
		}
	}
	for i, c := range spec.InitContainers {
		noDevices(c.VolumeDevices, path.Child("initContainers").Index(i))
	}
	for i, c := range spec.Containers {
		noDevices(c.VolumeDevices, path.Child("containers").Index(i))
	}
	for i, c := range spec.EphemeralContainers {
		noDevices(c.VolumeDevices, path.Child("ephemeralContainers").Index(i))
	}
	return errs
}

func isWindows(spec *corev1.PodSpec) bool { return spec.OS != nil && spec.OS.Name == corev1.Windows }

func validateOS(name corev1.OSName, at *field.Path) field.ErrorList {
	if name == "" {
		return validate.Required(name, at.Child("name"))
	}
	return validate.OneOf(name, at, corev1.Linux, corev1.Windows)
}

func userID(id *int64, at *field.Path) field.ErrorList {
	if id == nil {
		return nil
	}
	return validate.FromMessages(*id, at, validation.IsValidUserID(*id))
}

func groupID(id *int64, at *field.Path) field.ErrorList {
	if id == nil {
		return nil
	}
	return validGroup(id, at)
}

func validGroup(id *int64, at *field.Path) field.ErrorList {
	return validate.FromMessages(*id, at, validation.IsValidGroupID(*id))
}

// validateContainerSecurity checks the user of a container, and its privileges.
func validateContainerSecurity(s *corev1.SecurityContext, pod *corev1.PodSpec, at *field.Path) field.ErrorList {
	if s == nil {
		return nil
	}
	errs := slices.Concat(
		userID(s.RunAsUser, at.Child("runAsUser")),
		groupID(s.RunAsGroup, at.Child("runAsGroup")),
		validate.OneOfPtr(s.ProcMount, at.Child("procMount"), corev1.DefaultProcMount, corev1.UnmaskedProcMount),
		validateSeccomp(s.SeccompProfile, at.Child("seccompProfile")),
		validateAppArmor(s.AppArmorProfile, at.Child("appArmorProfile")),
		validateWindowsOptions(s.WindowsOptions, at.Child("windowsOptions")),
	)
	if ptr.Deref(pod.HostUsers, true) && ptr.Deref(s.ProcMount, "") == corev1.UnmaskedProcMount {
		errs = append(errs, field.Invalid(at.Child("procMount"), *s.ProcMount, "`hostUsers` must be false to use `Unmasked`"))
	}
	if ptr.Deref(s.AllowPrivilegeEscalation, true) {
		return errs
	}
	// Either gives the container privileges that it is forbidden to gain.
	if ptr.Deref(s.Privileged, false) {
		errs = append(errs, field.Invalid(at, s, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"))
	}
	if s.Capabilities != nil && slices.Contains(s.Capabilities.Add, "CAP_SYS_ADMIN") {
		errs = append(errs, field.Invalid(at, s, "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"))
	}
	return errs
}

func validateSeccomp(p *corev1.SeccompProfile, at *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := field.ErrorList{field.Required(at.Child("type"), "type is required when seccompProfile is set")}
	if p.Type != "" {
		errs = validate.OneOf(p.Type, at.Child("type"), corev1.SeccompProfileTypeLocalhost, corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeUnconfined)
	}
	profile := at.Child("localhostProfile")
	switch local := p.Type == corev1.SeccompProfileTypeLocalhost; {
	case local && p.LocalhostProfile == nil:
		errs = append(errs, field.Required(profile, "must be set when seccomp type is Localhost"))
	case local:
		errs = append(errs, relativePath(*p.LocalhostProfile, profile)...)
	case p.LocalhostProfile != nil:
		errs = append(errs, field.Invalid(profile, p, "can only be set when seccomp type is Localhost"))
	}
	return errs
}

func validateAppArmor(p *corev1.AppArmorProfile, at *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	profile := at.Child("localhostProfile")
	switch p.Type {
	case "":
		return field.ErrorList{field.Required(at.Child("type"), "type is required when appArmorProfile is set")}
	case corev1.AppArmorProfileTypeLocalhost:
		return validateProfileOfNode(ptr.Deref(p.LocalhostProfile, ""), profile)
	case corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined:
		if p.LocalhostProfile != nil {
			return field.ErrorList{field.Invalid(profile, *p.LocalhostProfile, "can only be set when AppArmor type is Localhost")}
		}
		return nil
	}
	return validate.OneOf(p.Type, at.Child("type"),
		corev1.AppArmorProfileTypeLocalhost, corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined)
}

// longestProfile is the maximum length of the name of an AppArmor profile, in bytes: that of a path on Linux.
const longestProfile = 4095

// validateProfileOfNode checks the name of an AppArmor profile that the node has.
func validateProfileOfNode(name string, at *field.Path) field.ErrorList {
	errs := validate.MaxBytes(name, at, longestProfile)
	switch {
	case strings.TrimSpace(name) != name:
		errs = append(errs, field.Invalid(at, name, "must not be padded with whitespace"))
	case name == "":
		errs = append(errs, field.Required(at, "must be set when AppArmor type is Localhost"))
	}
	return errs
}
