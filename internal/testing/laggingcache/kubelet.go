package laggingcache

import (
	"fmt"
	"hash/fnv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kubelet performs one action of a scheduler or a kubelet on a pod: it binds the pod to the node
// that bind returns, makes it ready, or removes it when it is being deleted. It reports whether
// there was an action to perform.
func (c *Cluster) Kubelet(pod *corev1.Pod, bind func(*corev1.Pod) string) bool {
	switch {
	case pod.DeletionTimestamp != nil:
		Remove(c, "pods", pod)
	case pod.Spec.NodeName == "":
		pod.Spec.NodeName = bind(pod)
		if pod.Spec.NodeName == "" {
			return false
		}
		Put(c, "pods", pod)
	case pod.Status.Phase == corev1.PodPending, pod.Status.Phase == corev1.PodRunning && !isReady(pod):
		c.SetRunning(pod, true)
	default:
		return false
	}
	return true
}

// SetRunning sets a pod to running, ready or not.
func (c *Cluster) SetRunning(pod *corev1.Pod, ready bool) {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.NewTime(c.Clock.Now())}}
	Put(c, "pods", pod)
}

// SetFailed sets a pod to failed.
func (c *Cluster) SetFailed(pod *corev1.Pod) {
	pod.Status = corev1.PodStatus{Phase: corev1.PodFailed}
	Put(c, "pods", pod)
}

func isReady(pod *corev1.Pod) bool {
	return len(pod.Status.Conditions) > 0 && pod.Status.Conditions[0].Status == corev1.ConditionTrue
}

// Available reports whether a pod has been ready for minReady, and is not being deleted.
func (c *Cluster) Available(pod *corev1.Pod, minReady time.Duration) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning && isReady(pod) &&
		!pod.Status.Conditions[0].LastTransitionTime.Add(minReady).After(c.Clock.Now())
}

// Unlucky returns a Fate under which one request in many fails. It depends only on the seed and
// the request, not on the order of concurrent requests.
func Unlucky(seed uint64, many int) func(verb, resource, name string) Fate {
	times := map[string]int{} // number of times a request was sent; guarded by the server's mutex
	return func(verb, resource, name string) Fate {
		request := verb + " " + resource + " " + name
		times[request]++
		hash := fnv.New64a()
		_, _ = fmt.Fprintf(hash, "%d %s %d", seed, request, times[request])
		switch hash.Sum64() % uint64(many) {
		case 0:
			return Refused
		case 1:
			return Lost
		}
		return Answered
	}
}
