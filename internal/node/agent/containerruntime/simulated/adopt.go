package simulated

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
)

// Update implements agent.Runtime. Simulated containers use the pod of each step instead.
func (r *Runtime) Update(*corev1.Pod) {}

// Adopt implements agent.Runtime. It continues what an earlier process simulated from
// the state in the pod's status: a running container has been running since its start, and whatever
// was due meanwhile happens now.
func (r *Runtime) Adopt(of *corev1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ready := hasSandbox(of)
	finished := of.Status.Phase == corev1.PodSucceeded || of.Status.Phase == corev1.PodFailed
	if r.pods[of.UID] != nil || !ready && !finished {
		return
	}
	p := &pod{sandbox: lifecycle.Sandbox{ID: string(of.UID), Ready: ready}}
	if ready {
		for _, ip := range of.Status.PodIPs {
			p.sandbox.IPs = append(p.sandbox.IPs, ip.IP)
			r.addresses.keep(ip.IP)
		}
	}
	for _, status := range slices.Concat(of.Status.InitContainerStatuses, of.Status.ContainerStatuses, of.Status.EphemeralContainerStatuses) {
		if run := resumed(of, status); run != nil {
			p.runs = append(p.runs, run)
		}
	}
	if !ready && len(p.runs) == 0 {
		return // it never ran here
	}
	r.pods[of.UID] = p
	for _, run := range p.runs {
		if run.Alive() {
			r.mayExit(of.UID, run)
		}
	}
}

func hasSandbox(of *corev1.Pod) bool {
	return slices.ContainsFunc(of.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReadyToStartContainers && c.Status == corev1.ConditionTrue
	})
}

// resumed returns the last instance of a container according to its status, or nil if it had none
// on this node.
func resumed(of *corev1.Pod, status corev1.ContainerStatus) *instance {
	if !strings.HasPrefix(status.ContainerID, scheme+"://") {
		return nil
	}
	set, err := settingsOf(of, status.Name)
	if err != nil {
		set = settings{exitTimes: -1} // invalid annotations do not stop a running container
	}
	run := &instance{settings: set, Instance: lifecycle.Instance{
		ID: status.ContainerID, Container: status.Name, Image: status.Image, Attempt: status.RestartCount, Backoff: backoffOf(status.RestartCount),
		Resources: status.Resources.DeepCopy(),
	}}
	if run.Resources == nil {
		run.Resources = resourcesOf(of, status.Name)
	}
	end := status.State.Terminated
	switch {
	case status.State.Running != nil:
		run.Started = status.State.Running.StartedAt.Time
		if set.readyAfter > 0 {
			run.ReadyAt = run.Started.Add(set.readyAfter)
		}
		return run
	case end == nil: // it waits for its restart
		end = status.LastTerminationState.Terminated
	}
	if end == nil || end.FinishedAt.IsZero() {
		return nil
	}
	run.Started, run.Finished = end.StartedAt.Time, end.FinishedAt.Time
	run.ExitCode, run.Reason, run.Message = end.ExitCode, end.Reason, end.Message
	return run
}

// backoffOf returns the back-off before the start of an instance, computed from its attempt number.
func backoffOf(attempt int32) time.Duration {
	const first, longest = 10 * time.Second, 5 * time.Minute
	if attempt < 2 {
		return 0
	}
	return min(first<<min(attempt-2, 5), longest)
}

func (a *addresses) keep(ip string) {
	if a.taken == nil {
		a.taken = map[string]struct{}{}
	}
	a.taken[ip] = struct{}{}
}
