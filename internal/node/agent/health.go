package agent

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// problem returns why the container runtime cannot be used, or "".
func (a *Agent) problem() string {
	if r, ok := a.runtime.(interface{ Healthy() error }); ok {
		if err := r.Healthy(); err != nil {
			return err.Error()
		}
	}
	return ""
}

// inspect returns the problem that the next report of a node tells. If there is one, the pods of the node are held before a
// controller can read that report.
func (a *Agent) inspect(node string) (problem string) {
	if problem = a.problem(); problem != "" {
		a.hold(node)
	}
	return problem
}

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
