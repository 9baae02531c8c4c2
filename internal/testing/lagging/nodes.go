package lagging

import (
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Work does one thing that a scheduler or a kubelet does about a pod: it binds it to the
// node that bind says, makes it ready, or removes it when it is being deleted. It tells
// whether there was anything to do.
func (w *World) Work(pod *corev1.Pod, bind func(*corev1.Pod) string) bool {
	switch {
	case pod.DeletionTimestamp != nil:
		Remove(w, "pods", pod)
	case pod.Spec.NodeName == "":
		pod.Spec.NodeName = bind(pod)
		if pod.Spec.NodeName == "" {
			return false
		}
		Put(w, "pods", pod)
	case pod.Status.Phase == corev1.PodPending, pod.Status.Phase == corev1.PodRunning && !readyIn(pod):
		w.Run(pod, true)
	default:
		return false
	}
	return true
}

// Run makes a pod a running one, which is ready or is not.
func (w *World) Run(pod *corev1.Pod, ready bool) { //nolint:revive // a state, no option
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.NewTime(w.Clock.Now())}}
	Put(w, "pods", pod)
}

// Fail ends a pod.
func (w *World) Fail(pod *corev1.Pod) {
	pod.Status = corev1.PodStatus{Phase: corev1.PodFailed}
	Put(w, "pods", pod)
}

func readyIn(pod *corev1.Pod) bool {
	return len(pod.Status.Conditions) > 0 && pod.Status.Conditions[0].Status == corev1.ConditionTrue
}

// Available tells whether a pod is ready since minReady, and not being deleted.
func (w *World) Available(pod *corev1.Pod, minReady time.Duration) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning && readyIn(pod) &&
		!pod.Status.Conditions[0].LastTransitionTime.Add(minReady).After(w.Clock.Now())
}

// Unlucky is a Fate that is bad for one request in that many.
func Unlucky(random *rand.Rand, many int) func(verb, resource, name string) Fate {
	return func(string, string, string) Fate {
		switch random.IntN(many) {
		case 0:
			return Refused
		case 1:
			return Lost
		}
		return Answered
	}
}
