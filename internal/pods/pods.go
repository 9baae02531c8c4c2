// Package pods is what the controllers know of pods: how one is made from a template,
// in what state it is, and which goes first when there are too many. It is pure.
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
)

// FromTemplate is a new pod of that template. It has no name and no owner yet.
func FromTemplate(template *corev1.PodTemplateSpec, namespace string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Labels: maps.Clone(template.Labels),
			Annotations: maps.Clone(template.Annotations), Finalizers: slices.Clone(template.Finalizers),
		},
		Spec: *template.Spec.DeepCopy(),
	}
}

// longestPrefix leaves room for what the server appends to a generated name.
const longestPrefix = 63 - 5

// NamePrefix is what the names of an object's pods begin with.
func NamePrefix(owner string) string {
	if len(owner) >= longestPrefix {
		return owner[:longestPrefix-1] + "-"
	}
	return owner + "-"
}

// IsTerminating tells whether the pod's deletion has begun.
func IsTerminating(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil }

// IsFinished tells whether the pod's containers have ended for good.
func IsFinished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// IsActive tells whether the pod runs or is going to, and is not to end.
func IsActive(pod *corev1.Pod) bool { return !IsFinished(pod) && !IsTerminating(pod) }

// IsReady tells whether the pod's Ready condition is true.
func IsReady(pod *corev1.Pod) bool {
	c := Condition(pod, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// Condition is the pod's condition of that type, nil without one.
func Condition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// AvailableIn is how long it takes from now until the pod has been ready for minReady
// without a break: not positive when it has. The second result is false for a pod that
// is not ready.
func AvailableIn(pod *corev1.Pod, minReady time.Duration, now time.Time) (time.Duration, bool) {
	if !IsReady(pod) {
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

// IsAvailable tells whether the pod has been ready for minReady.
func IsAvailable(pod *corev1.Pod, minReady time.Duration, now time.Time) bool {
	in, ready := AvailableIn(pod, minReady, now)
	return ready && in <= 0
}

// Hash tells templates apart: the value of the label pod-template-hash, and the end of
// names. what is anything that has one form in JSON. collisions, if not nil, is how many
// others were found to have the same hash.
func Hash(what any, collisions *int32) (string, error) {
	text, err := json.Marshal(what)
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

// SetCondition puts a condition into the pod's status, in the place of the one of that
// type. The time of the last transition stays where the status of the condition does.
func SetCondition(pod *corev1.Pod, c corev1.PodCondition) {
	there := Condition(pod, c.Type)
	if there == nil {
		pod.Status.Conditions = append(pod.Status.Conditions, c)
		return
	}
	if there.Status == c.Status {
		c.LastTransitionTime = there.LastTransitionTime
	}
	*there = c
}
