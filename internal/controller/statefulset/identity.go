package statefulset

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/controller/pods"
)

// ordinalOf returns the ordinal in the name of a pod of that set. The second result is false if
// the name is not of that form. The first ordinal and the number of replicas have 31 bits each, so that ordinals have 32.
func ordinalOf(set, pod string) (int, bool) {
	digits, ok := strings.CutPrefix(pod, set+"-")
	if !ok || digits == "" || len(digits) > 1 && digits[0] == '0' {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	return int(n), err == nil
}

func podName(set string, ordinal int) string { return set + "-" + strconv.Itoa(ordinal) }

// claimName returns the name of a pod's volume claim for that template. Every later pod of that
// name gets the same volume claim, and so the same volume.
func claimName(template, pod string) string { return template + "-" + pod }

// newPod returns the pod of that ordinal, from the template of that revision.
func newPod(set *appsv1.StatefulSet, template *corev1.PodTemplateSpec, revision string, ordinal int) *corev1.Pod {
	pod := pods.FromTemplate(template, set.Namespace)
	pod.Name = podName(set.Name, ordinal)
	pod.Spec.Hostname = pod.Name
	pod.Spec.Subdomain = set.Spec.ServiceName
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	maps.Copy(pod.Labels, identityLabels(pod.Name, ordinal))
	pod.Labels[appsv1.ControllerRevisionHashLabelKey] = revision
	pod.Spec.Volumes = volumes(pod, set.Spec.VolumeClaimTemplates)
	return pod
}

// identityLabels returns the labels by which a single pod of a set can be selected.
func identityLabels(pod string, ordinal int) map[string]string {
	return map[string]string{appsv1.StatefulSetPodNameLabel: pod, appsv1.PodIndexLabel: strconv.Itoa(ordinal)}
}

// volumes returns the volumes for the volume claims, and the template's volumes that none of
// these replaces.
func volumes(pod *corev1.Pod, templates []corev1.PersistentVolumeClaim) []corev1.Volume {
	list := slices.DeleteFunc(slices.Clone(pod.Spec.Volumes), func(v corev1.Volume) bool {
		return slices.ContainsFunc(templates, func(c corev1.PersistentVolumeClaim) bool { return c.Name == v.Name })
	})
	for _, template := range templates {
		list = append(list, corev1.Volume{Name: template.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claimName(template.Name, pod.Name)},
		}})
	}
	return list
}

// mountsClaims reports whether a pod has a volume for each of its volume claims.
func mountsClaims(pod *corev1.Pod, templates []string) bool {
	return len(missingClaims(pod, templates)) == 0
}

// missingClaims returns the volume claims of those templates for which a pod has no volume.
func missingClaims(pod *corev1.Pod, templates []string) []string {
	var missing []string
	for _, template := range templates {
		name := claimName(template, pod.Name)
		if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
			return v.Name == template && v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == name
		}) {
			missing = append(missing, name)
		}
	}
	return missing
}

// newClaim returns a pod's volume claim for that template.
func newClaim(set *appsv1.StatefulSet, template *corev1.PersistentVolumeClaim, pod string) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: claimName(template.Name, pod),
			Labels: maps.Clone(template.Labels), Annotations: maps.Clone(template.Annotations), Finalizers: slices.Clone(template.Finalizers),
		},
		Spec: *template.Spec.DeepCopy(),
	}
	for key, value := range set.Spec.Selector.MatchLabels {
		metav1.SetMetaDataLabel(&claim.ObjectMeta, key, value)
	}
	return claim
}
