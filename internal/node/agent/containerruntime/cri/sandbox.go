package cri

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The cgroup that contains all sandboxes and containers, as either cgroup driver names it.
const (
	cgroupPath  = "/coppice"
	cgroupSlice = "coppice.slice"
)

// cgroupParent returns the parent cgroup of the sandboxes. A runtime that uses the systemd driver
// expects the name of a slice; runtimes too old to report their driver have it in their
// configuration.
func cgroupParent(ctx context.Context, s internalapi.RuntimeService) string {
	if config, err := s.RuntimeConfig(ctx); err == nil {
		if config.GetLinux().GetCgroupDriver() == runtimeapi.CgroupDriver_SYSTEMD {
			return cgroupSlice
		}
		return cgroupPath
	}
	if answer, err := s.Status(ctx, true); err == nil && strings.Contains(answer.GetInfo()["config"], `"SystemdCgroup":true`) {
		return cgroupSlice
	}
	return cgroupPath
}

// clusterDomain is the domain of the names of pods that have a subdomain.
const clusterDomain = "cluster.local"

const (
	hostnameLength = 63 // the maximum length of a hostname
	nodenameLength = 64 // the maximum length of the name that the kernel stores
)

// sandboxConfig returns the CRI configuration of a pod's sandbox, without its DNS configuration.
func sandboxConfig(of *corev1.Pod, attempt int32, own map[string]string, cgroups, logs string) (*runtimeapi.PodSandboxConfig, error) {
	c := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name: of.Name, Uid: string(of.UID), Namespace: of.Namespace, Attempt: uint32(attempt),
		},
		LogDirectory: logs, Labels: podLabels(of, own), Annotations: of.Annotations, PortMappings: portMappings(of),
		Linux: &runtimeapi.LinuxPodSandboxConfig{CgroupParent: cgroups, SecurityContext: sandboxSecurity(of), Sysctls: sysctls(of)},
	}
	if of.Spec.HostNetwork {
		return c, nil
	}
	var err error
	c.Hostname, err = nodename(of)
	return c, err
}

// nodename returns the name that the kernel reports in the containers of a pod: its hostname, or its full name if the
// pod asks for it. A full name that is too long is an error, because a shorter one would be another name.
func nodename(of *corev1.Pod) (string, error) {
	full := fullName(of)
	switch asked := of.Spec.SetHostnameAsFQDN; {
	case full == "" || asked == nil || !*asked:
		return hostname(of), nil
	case len(full) > nodenameLength:
		return "", fmt.Errorf("failed to construct FQDN from pod hostname and cluster domain, FQDN %s is too long (%d characters is the max, %d characters requested)",
			full, nodenameLength, len(full))
	}
	return full, nil
}

// fullName returns the full name of a pod, or "" if it has none.
func fullName(of *corev1.Pod) string {
	if of.Spec.Subdomain == "" || of.Spec.HostnameOverride != nil {
		return ""
	}
	return fmt.Sprintf("%s.%s.%s.svc.%s", hostname(of), of.Spec.Subdomain, of.Namespace, clusterDomain)
}

// hostname returns the hostname of a pod.
func hostname(of *corev1.Pod) string {
	name := of.Name
	if of.Spec.Hostname != "" {
		name = of.Spec.Hostname
	}
	if override := of.Spec.HostnameOverride; override != nil {
		name = *override
	}
	if len(name) > hostnameLength {
		name = strings.TrimRight(name[:hostnameLength], "-.")
	}
	return name
}

// portMappings returns the host ports of a pod.
func portMappings(of *corev1.Pod) []*runtimeapi.PortMapping {
	if of.Spec.HostNetwork {
		return nil
	}
	var mappings []*runtimeapi.PortMapping
	for _, c := range containersOf(of) {
		for _, p := range c.Ports {
			if p.HostPort == 0 {
				continue
			}
			m := &runtimeapi.PortMapping{ContainerPort: p.ContainerPort, HostPort: p.HostPort, HostIp: p.HostIP}
			switch p.Protocol {
			case corev1.ProtocolUDP:
				m.Protocol = runtimeapi.Protocol_UDP
			case corev1.ProtocolSCTP:
				m.Protocol = runtimeapi.Protocol_SCTP
			case corev1.ProtocolTCP:
				m.Protocol = runtimeapi.Protocol_TCP
			}
			mappings = append(mappings, m)
		}
	}
	return mappings
}

// containersOf returns all containers of a pod, init containers first and ephemeral ones last.
func containersOf(of *corev1.Pod) []*corev1.Container {
	all := make([]*corev1.Container, 0, len(of.Spec.InitContainers)+len(of.Spec.Containers)+len(of.Spec.EphemeralContainers))
	for i := range of.Spec.InitContainers {
		all = append(all, &of.Spec.InitContainers[i])
	}
	for i := range of.Spec.Containers {
		all = append(all, &of.Spec.Containers[i])
	}
	for i := range of.Spec.EphemeralContainers {
		all = append(all, (*corev1.Container)(&of.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	return all
}

// sandboxSecurity returns the security context of a pod's sandbox. The sandbox has the runtime's seccomp profile: that of
// the pod need not allow the system calls of the sandbox's own process.
func sandboxSecurity(of *corev1.Pod) *runtimeapi.LinuxSandboxSecurityContext {
	s := &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: namespaces(of), Seccomp: defaultSeccomp()}
	for _, c := range containersOf(of) {
		if isPrivileged(c) {
			s.Privileged = true
		}
	}
	if asked := of.Spec.SecurityContext; asked != nil {
		if s.RunAsUser = number(asked.RunAsUser); s.RunAsUser != nil { // a runtime refuses a group without a user
			s.RunAsGroup = number(asked.RunAsGroup)
		}
		s.SupplementalGroups, s.SupplementalGroupsPolicy = groups(asked), groupsPolicy(asked)
		s.SelinuxOptions = selinux(asked.SELinuxOptions)
	}
	return s
}

// namespaces returns the namespaces that the containers of a pod share with each other and with the host.
func namespaces(of *corev1.Pod) *runtimeapi.NamespaceOption {
	n := &runtimeapi.NamespaceOption{
		Network: runtimeapi.NamespaceMode_POD, Ipc: runtimeapi.NamespaceMode_POD, Pid: runtimeapi.NamespaceMode_CONTAINER,
	}
	if of.Spec.HostNetwork {
		n.Network = runtimeapi.NamespaceMode_NODE
	}
	if of.Spec.HostIPC {
		n.Ipc = runtimeapi.NamespaceMode_NODE
	}
	switch {
	case of.Spec.HostPID:
		n.Pid = runtimeapi.NamespaceMode_NODE
	case of.Spec.ShareProcessNamespace != nil && *of.Spec.ShareProcessNamespace:
		n.Pid = runtimeapi.NamespaceMode_POD
	}
	return n
}

func sysctls(of *corev1.Pod) map[string]string {
	if of.Spec.SecurityContext == nil || len(of.Spec.SecurityContext.Sysctls) == 0 {
		return nil
	}
	all := map[string]string{}
	for _, s := range of.Spec.SecurityContext.Sysctls {
		all[s.Name] = s.Value
	}
	return all
}
