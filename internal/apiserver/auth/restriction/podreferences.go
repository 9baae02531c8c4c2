package restriction

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// referred are the names of what pods refer to in their namespace.
type referred struct{ maps, secrets []string }

// referencesOf are the config maps and secrets that a pod refers to: by its volumes, the
// environment of its containers, and for pulling its images. What a storage driver may be
// told by reference is not among them.
func referencesOf(pod *corev1.Pod) referred {
	var r referred
	for i := range pod.Spec.Volumes {
		r.volume(&pod.Spec.Volumes[i].VolumeSource)
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		r.environment(c.Env, c.EnvFrom)
	}
	for i := range pod.Spec.EphemeralContainers {
		c := &pod.Spec.EphemeralContainers[i].EphemeralContainerCommon
		r.environment(c.Env, c.EnvFrom)
	}
	for _, secret := range pod.Spec.ImagePullSecrets {
		r.secrets = append(r.secrets, secret.Name)
	}
	return r
}

func (r *referred) volume(v *corev1.VolumeSource) {
	if v.ConfigMap != nil {
		r.maps = append(r.maps, v.ConfigMap.Name)
	}
	if v.Secret != nil {
		r.secrets = append(r.secrets, v.Secret.SecretName)
	}
	if v.Projected == nil {
		return
	}
	for _, source := range v.Projected.Sources {
		if source.ConfigMap != nil {
			r.maps = append(r.maps, source.ConfigMap.Name)
		}
		if source.Secret != nil {
			r.secrets = append(r.secrets, source.Secret.Name)
		}
	}
}

func (r *referred) environment(env []corev1.EnvVar, from []corev1.EnvFromSource) {
	for _, e := range env {
		if e.ValueFrom != nil && e.ValueFrom.ConfigMapKeyRef != nil {
			r.maps = append(r.maps, e.ValueFrom.ConfigMapKeyRef.Name)
		}
		if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
			r.secrets = append(r.secrets, e.ValueFrom.SecretKeyRef.Name)
		}
	}
	for _, f := range from {
		if f.ConfigMapRef != nil {
			r.maps = append(r.maps, f.ConfigMapRef.Name)
		}
		if f.SecretRef != nil {
			r.secrets = append(r.secrets, f.SecretRef.Name)
		}
	}
}
