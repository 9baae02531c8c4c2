package admissionchain

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// The mount path and the ConfigMap of Kubernetes, where programs expect them.
const (
	volumePrefix = "kube-api-access-"
	mountPath    = "/var/run/secrets/kubernetes.io/serviceaccount"
	// authorityMap is the ConfigMap in each namespace with the CA certificate of the server.
	authorityMap = "kube-root-ca.crt"
	authorityKey = "ca.crt"
)

// tokenLifetime is the lifetime of a token, in seconds: an hour, and 7 s that distinguish its requests from
// those of pods that ask for an hour.
const tokenLifetime = 60*60 + 7

// mountsToken reports whether a pod gets a token: the pod decides, then the account.
func mountsToken(account *corev1.ServiceAccount, pod *corev1.Pod) bool {
	for _, wish := range []*bool{pod.Spec.AutomountServiceAccountToken, account.AutomountServiceAccountToken} {
		if wish != nil {
			return *wish
		}
	}
	return true
}

// mountToken mounts a volume with a token into the containers that have no other mount at its path.
func mountToken(pod *corev1.Pod, newName func() string) {
	name, has := "", false
	for _, v := range pod.Spec.Volumes {
		if strings.HasPrefix(v.Name, volumePrefix) {
			name, has = v.Name, true
			break
		}
	}
	if !has {
		name = newName()
	}
	mounted := false
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			c := &containers[i]
			if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == mountPath }) {
				c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, ReadOnly: true, MountPath: mountPath})
				mounted = true
			}
		}
	}
	if mounted && !has {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Projected: tokenVolume()}})
	}
}

// tokenVolume returns the volume: a token, the server's CA certificate, and the pod's namespace.
func tokenVolume() *corev1.ProjectedVolumeSource {
	seconds, mode := int64(tokenLifetime), corev1.ProjectedVolumeSourceDefaultMode
	return &corev1.ProjectedVolumeSource{DefaultMode: &mode, Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: &seconds}},
		{ConfigMap: &corev1.ConfigMapProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: authorityMap}, Items: []corev1.KeyToPath{{Key: authorityKey, Path: authorityKey}},
		}},
		{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
			{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}},
		}}},
	}}
}
