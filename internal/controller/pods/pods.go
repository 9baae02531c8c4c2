// Package pods contains functions on pods that controllers, nodes and the API server share, beyond
// k8s.io/kubectl/pkg/util/podutils: to create a pod from a template, to determine its state and
// whether its containers restart, and to order pods for deletion. It is pure.
package pods

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/kubectl/pkg/util/podutils"
)

// FromTemplate returns a new pod from the template, without a name or an owner.
func FromTemplate(template *corev1.PodTemplateSpec, namespace string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Labels: maps.Clone(template.Labels),
			Annotations: maps.Clone(template.Annotations), Finalizers: slices.Clone(template.Finalizers),
		},
		Spec: *template.Spec.DeepCopy(),
	}
}

// longestPrefix is the longest prefix to which the server can append a generated suffix.
const longestPrefix = 63 - 5

// NamePrefix returns the prefix of the names of an object's pods.
func NamePrefix(owner string) string {
	if len(owner) >= longestPrefix {
		return owner[:longestPrefix-1] + "-"
	}
	return owner + "-"
}

// IsTerminating reports whether the pod is being deleted.
func IsTerminating(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil }

// IsFinished reports whether the pod's containers have terminated for good.
func IsFinished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// IsActive reports whether the pod is running or will run, and is not being deleted.
func IsActive(pod *corev1.Pod) bool { return !IsFinished(pod) && !IsTerminating(pod) }

// Condition returns the pod's condition of that type, or nil.
func Condition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// AvailableIn returns the time from now until the pod will have been ready for minReady without
// interruption, not positive if it already has been. The second result is false for a pod that
// is not ready.
func AvailableIn(pod *corev1.Pod, minReady time.Duration, now time.Time) (time.Duration, bool) {
	if !podutils.IsPodReady(pod) {
		return 0, false
	}
	since := Condition(pod, corev1.PodReady).LastTransitionTime
	if minReady <= 0 {
		return 0, true
	}
	if since.IsZero() {
		return minReady, true
	}
	return since.Add(minReady).Sub(now), true
}

// IsAvailable reports whether the pod has been ready for minReady. Unlike
// podutils.IsPodAvailable it is true as soon as AvailableIn is 0, which is when controllers
// reconcile again: if the pod were still unavailable then, no event would make them reconcile
// later.
func IsAvailable(pod *corev1.Pod, minReady time.Duration, now time.Time) bool {
	in, ready := AvailableIn(pod, minReady, now)
	return ready && in <= 0
}

// Hash returns a hash of a template, for the label pod-template-hash and for names. template is
// any value with a deterministic JSON encoding. collisions, if not nil, is the number of hash
// collisions found so far.
func Hash(template any, collisions *int32) (string, error) {
	text, err := json.Marshal(template)
	if err != nil {
		return "", fmt.Errorf("hash: %w", err)
	}
	if collisions != nil {
		text = append(text, fmt.Sprintf("/%d", *collisions)...)
	}
	sum := fnv.New32a()
	_, _ = sum.Write(text)
	return rand.SafeEncodeString(fmt.Sprint(sum.Sum32())), nil
}

// SetCondition sets a condition in the pod's status, replacing the one of that type. The last
// transition time is kept if the status of the condition is unchanged.
func SetCondition(pod *corev1.Pod, c corev1.PodCondition) {
	existing := Condition(pod, c.Type)
	if existing == nil {
		pod.Status.Conditions = append(pod.Status.Conditions, c)
		return
	}
	if existing.Status == c.Status {
		c.LastTransitionTime = existing.LastTransitionTime
	}
	*existing = c
}
