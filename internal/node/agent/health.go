package agent

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// health returns why the container runtime cannot be used, or nil.
func (a *Agent) health() error {
	if r, ok := a.runtime.(interface{ Healthy() error }); ok {
		return r.Healthy()
	}
	return nil
}

func (a *Agent) isDown() bool { return a.health() != nil }

// hold keeps the pods of a node from becoming ready. The node lifecycle controller marks the pods of a node that is not
// ready as not ready; it and the agent, which observes nothing new while the runtime is down, would overwrite each other.
func (a *Agent) hold(node string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held[node] = struct{}{}
}

// release ends hold, and enqueues the pods that may be ready again.
func (a *Agent) release(node string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, held := a.held[node]; !held {
		return
	}
	delete(a.held, node)
	for uid := range a.records {
		a.queue.Add(uid)
	}
}

// isHeld reports whether a status must not be reported now: it says that the pod is ready, and the API does not.
func (a *Agent) isHeld(pod *corev1.Pod, status *corev1.PodStatus) bool {
	if isPodReady(&pod.Status) || !isPodReady(status) {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	_, held := a.held[pod.Spec.NodeName]
	return held
}

func isPodReady(status *corev1.PodStatus) bool {
	return slices.ContainsFunc(status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
