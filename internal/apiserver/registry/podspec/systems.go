package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// setting is a field that one operating system has and the other does not.
type setting struct {
	at  *field.Path
	set bool
}

// validateSystemSettings checks that a pod which names its operating system has no setting of the other one.
func validateSystemSettings(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	if spec.OS == nil {
		return nil
	}
	var foreign []setting
	text := ""
	switch spec.OS.Name {
	case corev1.Linux:
		text, foreign = "windows options cannot be set for a linux pod", windowsSettings(spec, path)
	case corev1.Windows:
		text, foreign = "cannot be set for a windows pod", linuxSettings(spec, path)
	}
	var errs field.ErrorList
	for _, s := range foreign {
		if s.set {
			errs = append(errs, field.Forbidden(s.at, text))
		}
	}
	return errs
}

func windowsSettings(spec *corev1.PodSpec, path *field.Path) []setting {
	const name = "windowsOptions"
	var all []setting
	if s := spec.SecurityContext; s != nil {
		all = append(all, setting{path.Child("securityContext", name), s.WindowsOptions != nil})
	}
	eachSecurityContext(spec, path, func(s *corev1.SecurityContext, at *field.Path) {
		all = append(all, setting{at.Child(name), s.WindowsOptions != nil})
	})
	return all
}

func linuxSettings(spec *corev1.PodSpec, path *field.Path) []setting {
	all := []setting{
		{path.Child("hostUsers"), spec.HostUsers != nil},
		{path.Child("hostPID"), spec.HostPID},
		{path.Child("hostIPC"), spec.HostIPC},
		{path.Child("shareProcessNamespace"), spec.ShareProcessNamespace != nil},
	}
	if s := spec.SecurityContext; s != nil {
		at := path.Child("securityContext")
		all = append(all,
			setting{at.Child("appArmorProfile"), s.AppArmorProfile != nil},
			setting{at.Child("seLinuxOptions"), s.SELinuxOptions != nil},
			setting{at.Child("seccompProfile"), s.SeccompProfile != nil},
			setting{at.Child("fsGroup"), s.FSGroup != nil},
			setting{at.Child("fsGroupChangePolicy"), s.FSGroupChangePolicy != nil},
			setting{at.Child("sysctls"), len(s.Sysctls) > 0},
			setting{at.Child("runAsUser"), s.RunAsUser != nil},
			setting{at.Child("runAsGroup"), s.RunAsGroup != nil},
			setting{at.Child("supplementalGroups"), s.SupplementalGroups != nil},
			setting{at.Child("supplementalGroupsPolicy"), s.SupplementalGroupsPolicy != nil},
			setting{at.Child("seLinuxChangePolicy"), s.SELinuxChangePolicy != nil},
		)
	}
	eachSecurityContext(spec, path, func(s *corev1.SecurityContext, at *field.Path) {
		all = append(all,
			setting{at.Child("appArmorProfile"), s.AppArmorProfile != nil},
			setting{at.Child("seLinuxOptions"), s.SELinuxOptions != nil},
			setting{at.Child("seccompProfile"), s.SeccompProfile != nil},
			setting{at.Child("capabilities"), s.Capabilities != nil},
			setting{at.Child("readOnlyRootFilesystem"), s.ReadOnlyRootFilesystem != nil},
			setting{at.Child("privileged"), s.Privileged != nil},
			setting{at.Child("allowPrivilegeEscalation"), s.AllowPrivilegeEscalation != nil},
			setting{at.Child("procMount"), s.ProcMount != nil},
			setting{at.Child("runAsUser"), s.RunAsUser != nil},
			setting{at.Child("runAsGroup"), s.RunAsGroup != nil},
		)
	})
	return all
}

// eachSecurityContext calls f with the security context of each container that has one.
func eachSecurityContext(spec *corev1.PodSpec, path *field.Path, f func(s *corev1.SecurityContext, at *field.Path)) {
	visit := func(s *corev1.SecurityContext, at *field.Path) {
		if s != nil {
			f(s, at.Child("securityContext"))
		}
	}
	for i := range spec.InitContainers {
		visit(spec.InitContainers[i].SecurityContext, path.Child("initContainers").Index(i))
	}
	for i := range spec.Containers {
		visit(spec.Containers[i].SecurityContext, path.Child("containers").Index(i))
	}
	for i := range spec.EphemeralContainers {
		visit(spec.EphemeralContainers[i].SecurityContext, path.Child("ephemeralContainers").Index(i))
	}
}
