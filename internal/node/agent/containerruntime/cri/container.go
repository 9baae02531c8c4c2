package cri

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
)

// terminationLog is the default terminationMessagePath.
const terminationLog = "/dev/termination-log"

// blueprint contains the input for the creation of a container.
type blueprint struct {
	pod       *corev1.Pod
	container *corev1.Container
	start     lifecycle.Start
	image     *runtimeapi.Image
	// variables are its environment variables, in order.
	variables []variable
	mounts    []*runtimeapi.Mount
	seccomp   *runtimeapi.SecurityProfile
	own       map[string]string // the agent's labels
	target    string            // the ID of the container whose processes it sees; "" for its own
	capacity  corev1.ResourceList
}

// containerConfig returns the CRI configuration of a container.
func containerConfig(b blueprint) *runtimeapi.ContainerConfig {
	c := b.container
	known := map[string]string{}
	for _, v := range b.variables {
		known[v.name] = v.value
	}
	labels := podLabels(b.pod, b.own)
	labels[labelContainerName] = c.Name
	config := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: uint32(b.start.Attempt)},
		Image:    &runtimeapi.ImageSpec{Image: b.image.GetId(), UserSpecifiedImage: c.Image},
		Command:  expandAll(c.Command, known), Args: expandAll(c.Args, known), WorkingDir: c.WorkingDir, Mounts: b.mounts,
		Labels: labels, Annotations: map[string]string{
			annotationBackoff: backoffText(b.start.Backoff), annotationImage: c.Image, annotationMessagePolicy: string(c.TerminationMessagePolicy),
		},
		LogPath: logPath(c.Name, b.start.Attempt), Stdin: c.Stdin, StdinOnce: c.StdinOnce, Tty: c.TTY,
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources: resources(b.pod, c, b.capacity), SecurityContext: containerSecurity(b),
		},
	}
	if n := config.GetLinux().GetSecurityContext().GetNamespaceOptions(); b.target != "" && n.GetPid() == runtimeapi.NamespaceMode_CONTAINER {
		n.Pid, n.TargetId = runtimeapi.NamespaceMode_TARGET, b.target
	}
	for _, v := range b.variables {
		config.Envs = append(config.Envs, &runtimeapi.KeyValue{Key: v.name, Value: []byte(v.value)})
	}
	return config
}

// find returns the container of a pod with the given name, or nil.
func find(of *corev1.Pod, name string) *corev1.Container {
	for _, c := range containersOf(of) {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// targetOf returns the name of the container whose processes an ephemeral container sees, or "".
func targetOf(of *corev1.Pod, name string) string {
	for i := range of.Spec.EphemeralContainers {
		if c := &of.Spec.EphemeralContainers[i]; c.Name == name {
			return c.TargetContainerName
		}
	}
	return ""
}

// The units of CPU in cgroups.
const (
	sharesPerCPU = 1024
	leastShares  = 2
	quotaPeriod  = 100_000 // in microseconds
	leastQuota   = 1_000   // in microseconds; the kernel's minimum
)

// resources returns the cgroup limits of a container.
func resources(of *corev1.Pod, c *corev1.Container, capacity corev1.ResourceList) *runtimeapi.LinuxContainerResources {
	r := &runtimeapi.LinuxContainerResources{
		CpuShares: leastShares, CpuPeriod: quotaPeriod, MemoryLimitInBytes: c.Resources.Limits.Memory().Value(), OomScoreAdj: oomScore(of, c, capacity),
	}
	request, asked := c.Resources.Requests[corev1.ResourceCPU]
	if !asked {
		request = c.Resources.Limits[corev1.ResourceCPU] // the request defaults to the limit
	}
	r.CpuShares = max(request.MilliValue()*sharesPerCPU/1000, leastShares)
	if limit := c.Resources.Limits.Cpu().MilliValue(); limit > 0 {
		r.CpuQuota = max(limit*quotaPeriod/1000, leastQuota)
	}
	return r
}

// The scores of the kernel's OOM killer: it kills 1000 first, and -1000 never.
const (
	oomGuaranteed = -997
	oomBestEffort = 1000
)

// oomScore returns the OOM score of a container: the less memory it requests, the higher the score.
func oomScore(of *corev1.Pod, c *corev1.Container, capacity corev1.ResourceList) int64 {
	switch of.Status.QOSClass {
	case corev1.PodQOSGuaranteed:
		return oomGuaranteed
	case corev1.PodQOSBestEffort:
		return oomBestEffort
	case corev1.PodQOSBurstable:
	}
	all := capacity.Memory().Value()
	if all == 0 {
		return oomBestEffort - 1
	}
	part := 1000 * c.Resources.Requests.Memory().Value() / all
	return min(max(oomBestEffort-part, 1000+oomGuaranteed), oomBestEffort-1)
}

// messagePath returns the path of a container's termination message.
func messagePath(c *corev1.Container) string { return cmp.Or(c.TerminationMessagePath, terminationLog) }
