package podspec

import corev1 "k8s.io/api/core/v1"

// dropDisabled removes the fields of feature gates that Kubernetes disables by default, so that no user believes that
// they work.
func dropDisabled(spec *corev1.PodSpec) {
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			c := &containers[i]
			dropStopSignal(&c.Lifecycle)
			dropOfContainer(c.Lifecycle, c.VolumeMounts, c.LivenessProbe, c.ReadinessProbe, c.StartupProbe)
		}
	}
	for i := range spec.EphemeralContainers {
		c := &spec.EphemeralContainers[i]
		dropStopSignal(&c.Lifecycle)
		dropOfContainer(c.Lifecycle, c.VolumeMounts, c.LivenessProbe, c.ReadinessProbe, c.StartupProbe)
	}
	for i := range spec.Volumes {
		dropOfVolume(&spec.Volumes[i].VolumeSource)
	}
	spec.SchedulingGroup = nil    // GenericWorkload
	spec.EvictionResponders = nil // EvictionRequestAPI
}

// dropStopSignal removes the signal that stops a container (ContainerStopSignals).
func dropStopSignal(lifecycle **corev1.Lifecycle) {
	l := *lifecycle
	if l == nil || l.StopSignal == nil {
		return
	}
	l.StopSignal = nil
	if l.PostStart == nil && l.PreStop == nil {
		*lifecycle = nil
	}
}

// dropOfContainer removes protocols of probes and handlers (H2CContainerProbe, GRPCContainerProbeTLS) and options of
// mounts (VolumeBindMountOptions).
func dropOfContainer(lifecycle *corev1.Lifecycle, mounts []corev1.VolumeMount, probes ...*corev1.Probe) {
	var requests []*corev1.HTTPGetAction
	if lifecycle != nil {
		for _, handler := range []*corev1.LifecycleHandler{lifecycle.PostStart, lifecycle.PreStop} {
			if handler != nil {
				requests = append(requests, handler.HTTPGet)
			}
		}
	}
	for _, probe := range probes {
		if probe == nil {
			continue
		}
		requests = append(requests, probe.HTTPGet)
		if probe.GRPC != nil {
			probe.GRPC.Mode = nil
		}
	}
	for _, request := range requests {
		if request != nil {
			request.Protocol = nil
		}
	}
	for i := range mounts {
		mounts[i].BindMountOptions = nil
	}
}

// dropOfVolume removes the mode of an emptyDir (EmptyDirVolumeMode) and the owners of files
// (AtomicWriteVolumeUserFields).
func dropOfVolume(v *corev1.VolumeSource) {
	if v.EmptyDir != nil {
		v.EmptyDir.Mode = nil
	}
	if s := v.Secret; s != nil {
		s.DefaultUser = nil
		dropUsers(s.Items)
	}
	if s := v.ConfigMap; s != nil {
		s.DefaultUser = nil
		dropUsers(s.Items)
	}
	if s := v.DownwardAPI; s != nil {
		s.DefaultUser = nil
		dropUsersOfFiles(s.Items)
	}
	if s := v.Projected; s != nil {
		s.DefaultUser = nil
		for i := range s.Sources {
			dropUsersOfProjection(&s.Sources[i])
		}
	}
}

func dropUsersOfProjection(p *corev1.VolumeProjection) {
	if s := p.Secret; s != nil {
		dropUsers(s.Items)
	}
	if s := p.ConfigMap; s != nil {
		dropUsers(s.Items)
	}
	if s := p.DownwardAPI; s != nil {
		dropUsersOfFiles(s.Items)
	}
	if s := p.ServiceAccountToken; s != nil {
		s.User = nil
	}
	if s := p.ClusterTrustBundle; s != nil {
		s.User = nil
	}
	if s := p.PodCertificate; s != nil {
		s.User = nil
	}
}

func dropUsers(items []corev1.KeyToPath) {
	for i := range items {
		items[i].User = nil
	}
}

func dropUsersOfFiles(files []corev1.DownwardAPIVolumeFile) {
	for i := range files {
		files[i].User = nil
	}
}
