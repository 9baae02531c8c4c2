package core

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
)

func podColumns() []table.Column {
	return append([]table.Column{
		table.Text("Ready", "Containers that are ready, of all that the pod has.", func(p *corev1.Pod) string {
			s := summaryOf(p)
			return table.Fraction(s.ready, s.total)
		}),
		table.Text("Status", "Phase of the pod, or the reason that it does not run.", func(p *corev1.Pod) string { return summaryOf(p).status }),
		table.TextAt("Restarts", "How often containers were restarted, and when last.", func(p *corev1.Pod, now time.Time) string {
			return summaryOf(p).restartText(now)
		}),
		table.Age(),
	}, table.Wide(
		table.Text("IP", "Address of the pod.", func(p *corev1.Pod) string { return table.OrNone(p.Status.PodIP) }),
		table.Text("Node", "Node that the pod is bound to.", func(p *corev1.Pod) string { return table.OrNone(p.Spec.NodeName) }),
		table.Text("Nominated Node", "Node on which other pods are preempted for this one.", func(p *corev1.Pod) string {
			return table.OrNone(p.Status.NominatedNodeName)
		}),
		table.Text("Readiness Gates", "Readiness gates that are true, of all that the pod has.", readinessGatesText),
	)...)
}

// podSummary is the state of a pod in one line. Sidecars (init containers that keep
// running) count as containers.
type podSummary struct {
	ready, total int
	status       string
	restarts     int32
	lastRestart  metav1.Time
}

func summaryOf(p *corev1.Pod) podSummary {
	s := podSummary{total: len(p.Spec.Containers), status: string(p.Status.Phase)}
	if p.Status.Reason != "" {
		s.status = p.Status.Reason
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonSchedulingGated {
			s.status = corev1.PodReasonSchedulingGated
		}
	}
	if !s.initializing(p) {
		s.running(p)
	}
	if p.DeletionTimestamp != nil {
		s.deleting(p)
	}
	return s
}

// initializing adds the init containers, and reports whether they are still running.
func (s *podSummary) initializing(p *corev1.Pod) bool {
	sidecars := map[string]bool{}
	for _, c := range p.Spec.InitContainers {
		if ptr.Deref(c.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways {
			sidecars[c.Name] = true
			s.total++
		}
	}
	var sidecarRestarts podSummary
	for i, c := range p.Status.InitContainerStatuses {
		s.count(c)
		switch {
		case sidecars[c.Name]:
			sidecarRestarts.count(c)
			if ptr.Deref(c.Started, false) {
				if c.Ready {
					s.ready++
				}
				continue
			}
		case c.State.Terminated != nil && c.State.Terminated.ExitCode == 0:
			continue
		}
		s.status = "Init:" + initText(c, i, len(p.Spec.InitContainers))
		return true
	}
	// Once the containers run, restarts of init containers no longer count.
	s.restarts, s.lastRestart = sidecarRestarts.restarts, sidecarRestarts.lastRestart
	return false
}

// initText returns the state of an init container, or the number of finished ones.
func initText(c corev1.ContainerStatus, done, of int) string {
	switch {
	case c.State.Terminated != nil:
		return terminatedText(c.State.Terminated)
	case c.State.Waiting != nil && c.State.Waiting.Reason != "" && c.State.Waiting.Reason != "PodInitializing":
		return c.State.Waiting.Reason
	}
	return table.Fraction(done, of)
}

// running adds the containers. The first one that has a reason gives the status.
func (s *podSummary) running(p *corev1.Pod) {
	anyRuns := false
	for _, c := range slices.Backward(p.Status.ContainerStatuses) {

		s.count(c)
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			s.status = c.State.Waiting.Reason
		case c.State.Terminated != nil:
			s.status = terminatedText(c.State.Terminated)
		case c.Ready && c.State.Running != nil:
			anyRuns = true
			s.ready++
		}
	}
	if s.status == "Completed" && anyRuns {
		s.status = "NotReady"
		if conditionIs(p, corev1.PodReady) {
			s.status = "Running"
		}
	}
}

// deleting shows that a pod is being deleted until it has ended.
func (s *podSummary) deleting(p *corev1.Pod) {
	switch {
	case p.Status.Reason == "NodeLost":
		s.status = "Unknown"
	case p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed:
		s.status = "Terminating"
	}
}

func (s *podSummary) count(c corev1.ContainerStatus) {
	s.restarts += c.RestartCount
	if last := c.LastTerminationState.Terminated; last != nil && s.lastRestart.Before(&last.FinishedAt) {
		s.lastRestart = last.FinishedAt
	}
}

func (s podSummary) restartText(now time.Time) string {
	restarts := strconv.Itoa(int(s.restarts))
	if s.restarts == 0 || s.lastRestart.IsZero() {
		return restarts
	}
	return fmt.Sprintf("%s (%s ago)", restarts, table.Since(s.lastRestart, now))
}

func terminatedText(t *corev1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	}
	return fmt.Sprintf("ExitCode:%d", t.ExitCode)
}

func conditionIs(p *corev1.Pod, want corev1.PodConditionType) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == want {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func readinessGatesText(p *corev1.Pod) string {
	if len(p.Spec.ReadinessGates) == 0 {
		return table.None
	}
	hold := 0
	for _, gate := range p.Spec.ReadinessGates {
		if conditionIs(p, gate.ConditionType) {
			hold++
		}
	}
	return table.Fraction(hold, len(p.Spec.ReadinessGates))
}
