package cri

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The paths in /proc and /sys that are hidden from, or read-only in, containers that are not
// privileged.
func maskedPaths() []string {
	return []string{
		"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/sched_debug",
		"/proc/scsi", "/proc/timer_list", "/proc/timer_stats", "/sys/devices/virtual/powercap", "/sys/firmware",
	}
}

func readonlyPaths() []string {
	return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}

func isPrivileged(c *corev1.Container) bool {
	return c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
}

func number(n *int64) *runtimeapi.Int64Value {
	if n == nil {
		return nil
	}
	return &runtimeapi.Int64Value{Value: *n}
}

// groups returns the supplemental groups of a pod's processes.
func groups(of *corev1.PodSecurityContext) []int64 {
	if of == nil {
		return nil
	}
	all := slices.Clone(of.SupplementalGroups)
	if of.FSGroup != nil {
		all = append(all, *of.FSGroup)
	}
	return all
}

// groupsPolicy says whether a process also has the groups of which its user is a member in the image's /etc/group.
func groupsPolicy(of *corev1.PodSecurityContext) runtimeapi.SupplementalGroupsPolicy {
	if of != nil && of.SupplementalGroupsPolicy != nil && *of.SupplementalGroupsPolicy == corev1.SupplementalGroupsPolicyStrict {
		return runtimeapi.SupplementalGroupsPolicy_Strict
	}
	return runtimeapi.SupplementalGroupsPolicy_Merge
}

func selinux(o *corev1.SELinuxOptions) *runtimeapi.SELinuxOption {
	if o == nil {
		return nil
	}
	return &runtimeapi.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}

// defaultSeccomp returns the runtime's own seccomp profile.
func defaultSeccomp() *runtimeapi.SecurityProfile {
	return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}
}

// seccomp returns the seccomp profile of a container, or of its pod. Kubernetes' default is
// unconfined. The runtime gets the whole path of a profile in a directory: a relative one would lead from the directory
// in which the runtime was started to any file, also to one that a container has written.
func seccomp(own *corev1.SecurityContext, of *corev1.PodSecurityContext, directory string) (*runtimeapi.SecurityProfile, error) {
	asked := &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
	if of != nil && of.SeccompProfile != nil {
		asked = of.SeccompProfile
	}
	if own != nil && own.SeccompProfile != nil {
		asked = own.SeccompProfile
	}
	switch asked.Type {
	case corev1.SeccompProfileTypeRuntimeDefault:
		return defaultSeccomp(), nil
	case corev1.SeccompProfileTypeLocalhost:
		name := ""
		if asked.LocalhostProfile != nil {
			name = *asked.LocalhostProfile
		}
		switch {
		case name == "":
			return nil, errors.New("localhostProfile must be set if seccompProfile type is Localhost")
		case !filepath.IsLocal(name):
			return nil, fmt.Errorf("localhostProfile %q is not a path below the directory of the node's seccomp profiles", name)
		}
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: filepath.Join(directory, name)}, nil
	case corev1.SeccompProfileTypeUnconfined:
	}
	return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}, nil
}

// apparmor returns the AppArmor profile of a container, or of its pod; nil is the runtime's
// default.
func apparmor(own *corev1.SecurityContext, of *corev1.PodSecurityContext) *runtimeapi.SecurityProfile {
	var asked *corev1.AppArmorProfile
	if of != nil {
		asked = of.AppArmorProfile
	}
	if own != nil && own.AppArmorProfile != nil {
		asked = own.AppArmorProfile
	}
	if asked == nil {
		return nil
	}
	switch asked.Type {
	case corev1.AppArmorProfileTypeUnconfined:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
	case corev1.AppArmorProfileTypeLocalhost:
		if asked.LocalhostProfile != nil {
			return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: *asked.LocalhostProfile}
		}
	case corev1.AppArmorProfileTypeRuntimeDefault:
	}
	return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}
}

// user is the user that runs the processes of a container.
type user struct {
	id, group *int64 // nil: the image's default
	nonRoot   bool   // must not be root
}

// userOf returns the user of a container from its own security context, or else from its pod's.
func userOf(of *corev1.Pod, c *corev1.Container) user {
	var u user
	if p := of.Spec.SecurityContext; p != nil {
		u.id, u.group, u.nonRoot = p.RunAsUser, p.RunAsGroup, p.RunAsNonRoot != nil && *p.RunAsNonRoot
	}
	if own := c.SecurityContext; own != nil {
		if own.RunAsUser != nil {
			u.id = own.RunAsUser
		}
		if own.RunAsGroup != nil {
			u.group = own.RunAsGroup
		}
		if own.RunAsNonRoot != nil {
			u.nonRoot = *own.RunAsNonRoot
		}
	}
	return u
}

// containerSecurity returns the security context of a container.
func containerSecurity(b blueprint) *runtimeapi.LinuxContainerSecurityContext {
	of, c := b.pod, b.container
	u := userOf(of, c)
	s := &runtimeapi.LinuxContainerSecurityContext{
		NamespaceOptions: namespaces(of), Privileged: isPrivileged(c), RunAsGroup: number(u.group),
		SupplementalGroups: groups(of.Spec.SecurityContext), SupplementalGroupsPolicy: groupsPolicy(of.Spec.SecurityContext),
		Seccomp: b.seccomp, Apparmor: apparmor(c.SecurityContext, of.Spec.SecurityContext),
	}
	switch {
	case u.id != nil:
		s.RunAsUser = number(u.id)
	case b.image.GetUid() != nil:
		s.RunAsUser = b.image.GetUid()
	case b.image.GetUsername() != "":
		s.RunAsUsername = b.image.GetUsername()
	default:
		s.RunAsUser = number(new(int64)) // root. A runtime refuses a group without a user
	}
	if !s.Privileged {
		s.MaskedPaths, s.ReadonlyPaths = maskedPaths(), readonlyPaths()
	}
	if p := of.Spec.SecurityContext; p != nil {
		s.SelinuxOptions = selinux(p.SELinuxOptions)
	}
	own := c.SecurityContext
	if own == nil {
		return s
	}
	if own.SELinuxOptions != nil {
		s.SelinuxOptions = selinux(own.SELinuxOptions)
	}
	s.NoNewPrivs = own.AllowPrivilegeEscalation != nil && !*own.AllowPrivilegeEscalation
	s.ReadonlyRootfs = own.ReadOnlyRootFilesystem != nil && *own.ReadOnlyRootFilesystem
	if own.ProcMount != nil && *own.ProcMount == corev1.UnmaskedProcMount {
		s.MaskedPaths, s.ReadonlyPaths = nil, nil
	}
	if own.Capabilities != nil {
		s.Capabilities = &runtimeapi.Capability{}
		for _, name := range own.Capabilities.Add {
			s.Capabilities.AddCapabilities = append(s.Capabilities.AddCapabilities, string(name))
		}
		for _, name := range own.Capabilities.Drop {
			s.Capabilities.DropCapabilities = append(s.Capabilities.DropCapabilities, string(name))
		}
	}
	return s
}

// mayRun returns the reason why runAsNonRoot forbids a container to run, or "".
func (u user) mayRun(image *runtimeapi.Image) string {
	switch {
	case !u.nonRoot:
		return ""
	case u.id != nil && *u.id == 0:
		return "container's runAsUser breaks non-root policy"
	case u.id != nil:
		return ""
	case image.GetUid() != nil && image.GetUid().GetValue() == 0, image.GetUid() == nil && image.GetUsername() == "":
		return "container has runAsNonRoot and image will run as root"
	case image.GetUid() == nil:
		return "container has runAsNonRoot and image has non-numeric user (" + image.GetUsername() + "), cannot verify user is non-root"
	}
	return ""
}
