package lifecycle

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Reasons of conditions.
const (
	podCompleted = "PodCompleted"
	podFailed    = "PodFailed"
	notReady     = "ContainersNotReady"
)

// setConditions sets the conditions that the node reports, in the order of a kubelet, after the
// conditions of others. A transition time is the time when the status of the condition changed.
func (d *decision) setConditions(s *corev1.PodStatus) {
	containers := d.containersCondition(s)
	own := []corev1.PodCondition{
		d.sandboxCondition(), d.initializedCondition(s), d.readyCondition(s, containers), containers,
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
	}
	before := s.Conditions
	s.Conditions = withoutOwn(before)
	for _, c := range own {
		c.ObservedGeneration = d.in.Pod.Generation
		c.LastTransitionTime = instant(d.in.Now)
		if i := slices.IndexFunc(before, func(old corev1.PodCondition) bool { return old.Type == c.Type }); i >= 0 {
			if before[i].Status == c.Status {
				c.LastTransitionTime = before[i].LastTransitionTime
			}
			c.LastProbeTime = before[i].LastProbeTime
		}
		s.Conditions = append(s.Conditions, c)
	}
}

// withoutOwn returns the conditions of bound pods that others than the node set.
func withoutOwn(all []corev1.PodCondition) []corev1.PodCondition {
	var others []corev1.PodCondition
	for _, c := range all {
		switch c.Type {
		case corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled:
		default:
			others = append(others, c)
		}
	}
	return others
}

// sandboxCondition reports whether containers can be started: there is a sandbox, and it has its network.
func (d *decision) sandboxCondition() corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionFalse, Reason: "PodSandboxNotReady"}
	switch s := d.in.Observed.Sandbox; {
	case s.Ready:
		c.Status, c.Reason = corev1.ConditionTrue, ""
	case s.ID == "":
		c.Message = "no pod sandbox exists"
	case s.NoAddress:
		c.Message = "pod sandbox has no IP address"
	default:
		c.Message = "pod sandbox is not ready"
	}
	return c
}

// initializedCondition reports whether all init containers have completed.
func (d *decision) initializedCondition(s *corev1.PodStatus) corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}
	if s.Phase == corev1.PodSucceeded {
		c.Reason = podCompleted
	}
	if d.initialized() || len(d.in.Pod.Spec.InitContainers) == 0 || s.Phase == corev1.PodSucceeded {
		return c
	}
	var left []string
	for i := range d.containers {
		if u := &d.containers[i]; u.role == initial && !u.succeeded() || u.role == sidecar && !u.hasStarted() {
			left = append(left, u.spec.Name)
		}
	}
	if len(left) > 0 {
		c.Status, c.Reason = corev1.ConditionFalse, "ContainersNotInitialized"
		c.Message = fmt.Sprintf("containers with incomplete status: [%s]", strings.Join(left, " "))
	}
	return c
}

// containersCondition reports whether all containers that run for the pod's lifetime are ready.
func (d *decision) containersCondition(s *corev1.PodStatus) corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionFalse}
	switch s.Phase {
	case corev1.PodSucceeded:
		c.Reason = podCompleted
		return c
	case corev1.PodFailed:
		c.Reason = podFailed
		return c
	case corev1.PodPending, corev1.PodRunning, corev1.PodUnknown:
	}
	var left []string
	for i := range d.containers {
		if u := &d.containers[i]; u.role != initial && u.role != ephemeral && !u.isReady(d.in.Now) {
			left = append(left, u.spec.Name)
		}
	}
	if len(left) == 0 {
		c.Status = corev1.ConditionTrue
		return c
	}
	c.Reason, c.Message = notReady, fmt.Sprintf("containers with unready status: [%s]", strings.Join(left, " "))
	return c
}

// readyCondition reports whether the pod can serve: its containers are ready, and so are its
// readiness gates.
func (d *decision) readyCondition(s *corev1.PodStatus, containers corev1.PodCondition) corev1.PodCondition {
	c := containers
	c.Type = corev1.PodReady
	if c.Status != corev1.ConditionTrue {
		return c
	}
	var closed []string
	for _, gate := range d.in.Pod.Spec.ReadinessGates {
		i := slices.IndexFunc(s.Conditions, func(c corev1.PodCondition) bool { return c.Type == gate.ConditionType })
		switch {
		case i < 0:
			closed = append(closed, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", gate.ConditionType))
		case s.Conditions[i].Status != corev1.ConditionTrue:
			closed = append(closed, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %s", gate.ConditionType, s.Conditions[i].Status))
		}
	}
	if len(closed) > 0 {
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, "ReadinessGatesNotReady", strings.Join(closed, ", ")
	}
	return c
}
