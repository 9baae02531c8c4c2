package restriction

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// podReferences are names of objects in the namespace of a pod.
type podReferences struct{ configMaps, secrets []string }

// referencesOf returns the ConfigMaps and Secrets that a pod refers to in its volumes, the environment of
// its containers, and imagePullSecrets. It ignores the secretRefs of volume drivers: an agent does not read
// them.
func referencesOf(pod *corev1.Pod) podReferences {
	var r podReferences
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

func (r *podReferences) volume(v *corev1.VolumeSource) {
	if v.ConfigMap != nil {
		r.configMaps = append(r.configMaps, v.ConfigMap.Name)
	}
	if v.Secret != nil {
		r.secrets = append(r.secrets, v.Secret.SecretName)
	}
	if v.Projected == nil {
		return
	}
	for _, source := range v.Projected.Sources {
		if source.ConfigMap != nil {
			r.configMaps = append(r.configMaps, source.ConfigMap.Name)
		}
		if source.Secret != nil {
			r.secrets = append(r.secrets, source.Secret.Name)
		}
	}
}

func (r *podReferences) environment(env []corev1.EnvVar, from []corev1.EnvFromSource) {
	for _, e := range env {
		if e.ValueFrom != nil && e.ValueFrom.ConfigMapKeyRef != nil {
			r.configMaps = append(r.configMaps, e.ValueFrom.ConfigMapKeyRef.Name)
		}
		if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
			r.secrets = append(r.secrets, e.ValueFrom.SecretKeyRef.Name)
		}
	}
	for _, f := range from {
		if f.ConfigMapRef != nil {
			r.configMaps = append(r.configMaps, f.ConfigMapRef.Name)
		}
		if f.SecretRef != nil {
			r.secrets = append(r.secrets, f.SecretRef.Name)
		}
	}
}
