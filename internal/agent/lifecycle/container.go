package lifecycle

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The back-off before a container is restarted.
const (
	firstBackoff   = 10 * time.Second
	longestBackoff = 5 * time.Minute
	// longestBackoff is reached after this many doublings of the first.
	maxDoublings = 5
	// steadyAfter is how long an instance has to run before the back-off is reset.
	steadyAfter = 10 * time.Minute
)

// role is the role of a container in its pod.
type role int

const (
	regular   role = iota
	initial        // an init container
	sidecar        // an init container with restartPolicy Always
	ephemeral      // a container that was added to debug the pod; it never restarts
)

// container is one container of a pod and its observed state.
type container struct {
	spec     *corev1.Container
	role     role
	policy   corev1.RestartPolicy
	current  *Instance               // the last instance
	previous *Instance               // the one before it, if the runtime still has it
	prior    *corev1.ContainerStatus // the status in the API, or nil
	kept     instanceState           // of current
}

// containersOf returns the containers of a pod, init containers first and ephemeral ones last, in
// the order of the spec.
func containersOf(pod *corev1.Pod, o *Observed, m *State) []container {
	all := make([]container, 0, len(pod.Spec.InitContainers)+len(pod.Spec.Containers)+len(pod.Spec.EphemeralContainers))
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		u := container{spec: c, role: initial, policy: pod.Spec.RestartPolicy}
		if u.policy == corev1.RestartPolicyAlways {
			u.policy = corev1.RestartPolicyOnFailure // once it has succeeded it has completed
		}
		if c.RestartPolicy != nil {
			u.policy = corev1.RestartPolicy(*c.RestartPolicy)
		}
		if u.policy == corev1.RestartPolicyAlways {
			u.role = sidecar
		}
		u.prior = statusOf(pod.Status.InitContainerStatuses, c.Name)
		all = append(all, u)
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		u := container{spec: c, role: regular, policy: pod.Spec.RestartPolicy}
		if c.RestartPolicy != nil {
			u.policy = corev1.RestartPolicy(*c.RestartPolicy)
		}
		u.prior = statusOf(pod.Status.ContainerStatuses, c.Name)
		all = append(all, u)
	}
	for i := range pod.Spec.EphemeralContainers {
		c := &pod.Spec.EphemeralContainers[i]
		all = append(all, container{
			spec: (*corev1.Container)(&c.EphemeralContainerCommon), role: ephemeral, policy: corev1.RestartPolicyNever,
			prior: statusOf(pod.Status.EphemeralContainerStatuses, c.Name),
		})
	}
	for i := range all {
		all[i].find(o, m)
	}
	return all
}

func statusOf(statuses []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	i := slices.IndexFunc(statuses, func(s corev1.ContainerStatus) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &statuses[i]
}

// find finds the instances of the container.
func (u *container) find(o *Observed, m *State) {
	for i := range o.Instances {
		instance := &o.Instances[i]
		if instance.Container != u.spec.Name {
			continue
		}
		switch {
		case u.current == nil || instance.Attempt > u.current.Attempt:
			u.previous, u.current = u.current, instance
		case u.previous == nil || instance.Attempt > u.previous.Attempt:
			u.previous = instance
		}
	}
	if u.current == nil {
		u.conclude()
		return
	}
	u.kept = m.peek(u.current.ID)
	if u.prior != nil && u.prior.ContainerID == u.current.ID {
		u.restore()
	}
}

// conclude takes the end of a regular container from its status in the API if the runtime has no instance of it
// any more, and its policy does not restart it: a container that has completed does not run again because the
// sandbox of its pod was replaced.
func (u *container) conclude() {
	if u.role != regular || u.prior == nil || u.prior.State.Terminated == nil || u.prior.ContainerID == "" {
		return
	}
	end := u.prior.State.Terminated
	u.current = &Instance{
		ID: u.prior.ContainerID, Container: u.spec.Name, Attempt: u.prior.RestartCount, ImageID: u.prior.ImageID,
		Started: end.StartedAt.Time, Finished: end.FinishedAt.Time, ExitCode: end.ExitCode, Reason: end.Reason, Message: end.Message,
	}
	if !u.exited() || u.restarts() {
		u.current = nil
	}
}

// restore restores what an agent does not remember after a restart from the status that it last
// reported. A container does not become unready because its agent was restarted.
func (u *container) restore() {
	if p := &u.kept.probes[Startup]; p.outcome == undecided && p.last.IsZero() && u.prior.Started != nil && *u.prior.Started {
		p.outcome = passing
	}
	if p := &u.kept.probes[Readiness]; p.outcome == undecided && p.last.IsZero() && u.prior.Ready {
		p.outcome = passing
	}
}

func (u *container) alive() bool     { return u.current.Alive() }
func (u *container) exited() bool    { return u.current != nil && !u.current.Alive() }
func (u *container) succeeded() bool { return u.exited() && u.current.ExitCode == 0 }

// restarts reports whether a container that has ended is to be restarted: by the first of its own rules
// that is about its exit code, or else by its policy.
func (u *container) restarts() bool {
	if u.exited() && u.isRestartedByRule() {
		return true
	}
	switch u.policy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return !u.succeeded()
	case corev1.RestartPolicyAlways:
	}
	return true
}

// isRestartedByRule reports whether a rule of the container has it restarted. There are only rules that do.
// An init container that has succeeded has completed.
func (u *container) isRestartedByRule() bool {
	if u.role == initial && u.succeeded() {
		return false
	}
	return slices.ContainsFunc(u.spec.RestartPolicyRules, func(r corev1.ContainerRestartRule) bool {
		return r.ExitCodes != nil && slices.Contains(r.ExitCodes.Values, u.current.ExitCode) == (r.ExitCodes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn)
	})
}

// isOver reports whether a container has ended for good.
func (u *container) isOver() bool { return u.exited() && !u.restarts() }

// hasStarted reports whether a container has started up, so that the containers that wait for it
// may start.
func (u *container) hasStarted() bool {
	return u.alive() && (u.spec.StartupProbe == nil || u.kept.probes[Startup].outcome == passing)
}

func (u *container) isReady(now time.Time) bool {
	switch u.role {
	case initial:
		return u.succeeded()
	case ephemeral:
		return false // nothing depends on it
	case regular, sidecar:
	}
	return u.hasStarted() && !now.Before(u.current.ReadyAt) &&
		(u.spec.ReadinessProbe == nil || u.kept.probes[Readiness].outcome == passing)
}

// nextAttempt returns the attempt number of the next instance. It continues from the restart count
// in the API if the runtime has lost the instances.
func (u *container) nextAttempt() int32 {
	switch {
	case u.current != nil:
		return u.current.Attempt + 1
	case u.prior != nil && u.prior.ContainerID != "":
		return u.prior.RestartCount + 1
	}
	return 0
}

// nextBackoff returns the delay between the end of the last instance and the start of the next.
func (u *container) nextBackoff() time.Duration {
	switch last := u.current; {
	case !u.exited(), last.Attempt == 0, last.Finished.Sub(last.Started) >= steadyAfter:
		return 0
	case last.Backoff == 0:
		return firstBackoff
	default:
		return min(2*last.Backoff, longestBackoff)
	}
}

// restartAt returns when the next instance may start, or zero if there is no delay.
func (u *container) restartAt() time.Time {
	if !u.exited() {
		return time.Time{}
	}
	return u.current.Finished.Add(u.nextBackoff())
}
