package podspec

import corev1 "k8s.io/api/core/v1"

// dropDisabled removes the fields of feature gates that Kubernetes disables by default, so that no user believes that
// they work.
func dropDisabled(spec *corev1.PodSpec) {
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			dropStopSignal(&containers[i].Lifecycle)
		}
	}
	for i := range spec.EphemeralContainers {
		dropStopSignal(&spec.EphemeralContainers[i].Lifecycle)
	}
	for _, volume := range spec.Volumes {
		if volume.Projected == nil {
			continue
		}
		for i := range volume.Projected.Sources {
			volume.Projected.Sources[i].ClusterTrustBundle = nil
			volume.Projected.Sources[i].PodCertificate = nil
		}
	}
	spec.SchedulingGroup = nil
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
