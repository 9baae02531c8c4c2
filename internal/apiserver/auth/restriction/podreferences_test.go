package restriction

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Each place of a pod that refers to a config map or a secret counts.
func TestReferencesOf(t *testing.T) {
	named := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	container := func(name string) ([]corev1.EnvVar, []corev1.EnvFromSource) {
		env := []corev1.EnvVar{
			{Name: "plain", Value: "v"},
			{ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{}}},
			{ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: named(name + "-key")}}},
			{ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: named(name + "-key")}}},
		}
		from := []corev1.EnvFromSource{
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: named(name + "-all")}},
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: named(name + "-all")}},
		}
		return env, from
	}
	pod := &corev1.Pod{}
	var c, initial corev1.Container
	var debug corev1.EphemeralContainer
	c.Env, c.EnvFrom = container("c")
	initial.Env, initial.EnvFrom = container("init")
	debug.Env, debug.EnvFrom = container("debug")
	pod.Spec = corev1.PodSpec{
		InitContainers: []corev1.Container{initial}, Containers: []corev1.Container{c}, EphemeralContainers: []corev1.EphemeralContainer{debug},
		ImagePullSecrets: []corev1.LocalObjectReference{named("pull")},
		Volumes: []corev1.Volume{
			{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: named("volume")}}},
			{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "volume"}}},
			{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: named("projected")}},
				{Secret: &corev1.SecretProjection{LocalObjectReference: named("projected")}},
			}}}},
		},
	}
	got := referencesOf(pod)
	want := []string{"c-all", "c-key", "debug-all", "debug-key", "init-all", "init-key", "projected", "volume"}
	slices.Sort(got.configMaps)
	if !slices.Equal(got.configMaps, want) {
		t.Errorf("config maps %v, want %v", got.configMaps, want)
	}
	want = slices.Insert(want, 7, "pull")
	slices.Sort(got.secrets)
	slices.Sort(want)
	if !slices.Equal(got.secrets, want) {
		t.Errorf("secrets %v, want %v", got.secrets, want)
	}
}
