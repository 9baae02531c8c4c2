package podspec

import (
	"maps"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
)

// DefaultSpec sets the fields that the spec of a pod, or of a template, leaves out. Controllers compare templates with
// pods, so both have the same defaults for the fields that both have.
func DefaultSpec(spec *corev1.PodSpec) {
	registry.SetDefault(&spec.DNSPolicy, corev1.DNSClusterFirst)
	registry.SetDefault(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	registry.SetDefault(&spec.SchedulerName, corev1.DefaultSchedulerName)
	registry.SetDefaultPtr(&spec.TerminationGracePeriodSeconds, int64(corev1.DefaultTerminationGracePeriodSeconds))
	registry.SetDefaultPtr(&spec.SecurityContext, corev1.PodSecurityContext{})
	// The deprecated name of the field has the same value, for old clients.
	registry.SetDefault(&spec.ServiceAccountName, spec.DeprecatedServiceAccount)
	spec.DeprecatedServiceAccount = spec.ServiceAccountName

	for i := range spec.InitContainers {
		defaultContainer(&spec.InitContainers[i])
	}
	for i := range spec.Containers {
		defaultContainer(&spec.Containers[i])
	}
	for i := range spec.EphemeralContainers {
		common := corev1.Container(spec.EphemeralContainers[i].EphemeralContainerCommon)
		defaultContainer(&common)
		spec.EphemeralContainers[i].EphemeralContainerCommon = corev1.EphemeralContainerCommon(common)
	}
	for i := range spec.Volumes {
		defaultVolume(&spec.Volumes[i])
	}
	dropDisabled(spec)
}

// DefaultPod sets the defaults that pods have and templates do not.
func DefaultPod(pod *corev1.Pod) {
	registry.SetDefaultPtr(&pod.Spec.EnableServiceLinks, corev1.DefaultEnableServiceLinks)
	// The node that finds such a pod ends it after the shortest time that there is.
	if grace := pod.Spec.TerminationGracePeriodSeconds; grace != nil && *grace < 0 {
		pod.Spec.TerminationGracePeriodSeconds = new(int64(1))
	}
	DefaultSpec(&pod.Spec)
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			defaultRequests(&containers[i].Resources)
			if pod.Spec.HostNetwork {
				defaultHostPorts(containers[i].Ports)
			}
		}
	}
}

// defaultHostPorts sets the host ports of a pod in the network of its node to the ports of its containers.
func defaultHostPorts(ports []corev1.ContainerPort) {
	for i := range ports {
		registry.SetDefault(&ports[i].HostPort, ports[i].ContainerPort)
	}
}

// defaultRequests sets missing requests to the limits.
func defaultRequests(r *corev1.ResourceRequirements) {
	if len(r.Limits) == 0 {
		return
	}
	requests := maps.Clone(r.Limits)
	maps.Copy(requests, r.Requests)
	r.Requests = requests
}

func defaultContainer(c *corev1.Container) {
	registry.SetDefault(&c.ImagePullPolicy, pullPolicyOf(c.Image))
	registry.SetDefault(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	registry.SetDefault(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		registry.SetDefault(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for i := range c.Env {
		source := c.Env[i].ValueFrom
		if source != nil && source.FieldRef != nil {
			registry.SetDefault(&source.FieldRef.APIVersion, "v1")
		}
		if source != nil && source.FileKeyRef != nil {
			registry.SetDefaultPtr(&source.FileKeyRef.Optional, false)
		}
	}
	for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		defaultProbe(probe)
	}
	if c.Lifecycle != nil {
		for _, handler := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if handler != nil {
				defaultHTTPGet(handler.HTTPGet)
			}
		}
	}
}

// pullPolicyOf returns the default pull policy of an image. The tag latest moves, so such an image is always pulled; it
// is also the default tag if the name has neither tag nor digest. An invalid name has no tag.
func pullPolicyOf(image string) corev1.PullPolicy {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return corev1.PullIfNotPresent
	}
	if tagged, ok := reference.TagNameOnly(named).(reference.Tagged); ok && tagged.Tag() == "latest" {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

func defaultProbe(p *corev1.Probe) {
	if p == nil {
		return
	}
	registry.SetDefault(&p.TimeoutSeconds, 1)
	registry.SetDefault(&p.PeriodSeconds, 10)
	registry.SetDefault(&p.SuccessThreshold, 1)
	registry.SetDefault(&p.FailureThreshold, 3)
	defaultHTTPGet(p.HTTPGet)
	if p.GRPC != nil {
		registry.SetDefaultPtr(&p.GRPC.Service, "")
	}
}

func defaultHTTPGet(get *corev1.HTTPGetAction) {
	if get == nil {
		return
	}
	registry.SetDefault(&get.Path, "/")
	registry.SetDefault(&get.Scheme, corev1.URISchemeHTTP)
}

func defaultVolume(v *corev1.Volume) {
	if sourcesOf(&v.VolumeSource) == nil {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	// A volume whose place a claim of a StatefulSet takes may have several sources: nobody validates it.
	if v.Secret != nil {
		registry.SetDefaultPtr(&v.Secret.DefaultMode, corev1.SecretVolumeSourceDefaultMode)
	}
	if v.ConfigMap != nil {
		registry.SetDefaultPtr(&v.ConfigMap.DefaultMode, corev1.ConfigMapVolumeSourceDefaultMode)
	}
	if v.DownwardAPI != nil {
		registry.SetDefaultPtr(&v.DownwardAPI.DefaultMode, corev1.DownwardAPIVolumeSourceDefaultMode)
		defaultDownwardFiles(v.DownwardAPI.Items)
	}
	if v.Projected != nil {
		defaultProjection(v.Projected)
	}
	if v.HostPath != nil {
		registry.SetDefaultPtr(&v.HostPath.Type, corev1.HostPathUnset)
	}
	if v.Image != nil {
		registry.SetDefault(&v.Image.PullPolicy, pullPolicyOf(v.Image.Reference))
	}
	if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
		registry.SetDefaultPtr(&v.Ephemeral.VolumeClaimTemplate.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	}
}

func defaultProjection(p *corev1.ProjectedVolumeSource) {
	const anHour = 60 * 60
	registry.SetDefaultPtr(&p.DefaultMode, corev1.ProjectedVolumeSourceDefaultMode)
	for i := range p.Sources {
		if token := p.Sources[i].ServiceAccountToken; token != nil {
			registry.SetDefaultPtr(&token.ExpirationSeconds, int64(anHour))
		}
		if downward := p.Sources[i].DownwardAPI; downward != nil {
			defaultDownwardFiles(downward.Items)
		}
	}
}

func defaultDownwardFiles(files []corev1.DownwardAPIVolumeFile) {
	for i := range files {
		if files[i].FieldRef != nil {
			registry.SetDefault(&files[i].FieldRef.APIVersion, "v1")
		}
	}
}
