package lifecycle

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/controller/pods"
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
	afresh   bool                    // an init container that runs again in each new sandbox
	current  *Instance               // the last instance, or the one that end describes
	previous *Instance               // the one before it, if the runtime still has it
	prior    *corev1.ContainerStatus // the status in the API, or nil
	kept     instanceState           // of current
	// end is the final end of the container, if the runtime no longer has an instance of it.
	end *corev1.ContainerStateTerminated
}

// containersOf returns the containers of a pod and their observed state, in the order of specified.
func containersOf(pod *corev1.Pod, o *Observed, m *State) []container {
	all := specified(pod)
	for i := range all {
		all[i].find(o, m)
	}
	return all
}

// specified returns the containers of a pod without their observed state, init containers first and
// ephemeral ones last, in the order of the spec.
func specified(pod *corev1.Pod) []container {
	all := make([]container, 0, len(pod.Spec.InitContainers)+len(pod.Spec.Containers)+len(pod.Spec.EphemeralContainers))
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		u := container{spec: c, role: initial, policy: pod.Spec.RestartPolicy, afresh: pod.Spec.RestartPolicy == corev1.RestartPolicyAlways}
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
	if u.exited() && u.prior != nil && u.prior.RestartCount > u.current.Attempt {
		u.current, u.previous = nil, nil // the runtime has lost a later one
	}
	if u.current == nil {
		u.conclude(&o.Sandbox)
		return
	}
	u.kept = m.peek(u.current.ID)
	if u.prior != nil && u.prior.ContainerID == u.current.ID {
		u.restore()
	}
}

// conclude takes the end of a container from its status in the API if the runtime no longer has an instance of it and
// it may not run again. So neither the loss of an instance nor a new sandbox runs such a container twice.
func (u *container) conclude(s *Sandbox) {
	if u.prior == nil || u.prior.ContainerID == "" {
		return
	}
	end := u.prior.State.Terminated
	switch {
	case end != nil:
	case u.prior.State.Running != nil:
		end = lostEnd(u.prior)
	default:
		return // it waits for its restart
	}
	// The API has times in seconds: a container that started in the second of the sandbox's creation ran in it.
	isNew := s.ID == "" || instant(s.Created).After(end.StartedAt.Time)
	if u.mayRunAgain(end.ExitCode, isNew) {
		return
	}
	finished := end.FinishedAt.Time
	if finished.IsZero() {
		finished = time.Unix(0, 0) // the time is unknown; it is not alive
	}
	u.end, u.current = end, &Instance{
		ID: u.prior.ContainerID, Container: u.spec.Name, Attempt: u.prior.RestartCount, Image: u.prior.Image, ImageID: u.prior.ImageID,
		Started: end.StartedAt.Time, Finished: finished, ExitCode: end.ExitCode, Reason: end.Reason, Message: end.Message,
	}
}

// restore restores, from the last reported status, the state that an agent loses at a restart. A
// restart of the agent does not make a container unready.
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

// MayRunAgain reports whether a container may run again after it has ended with an exit code, in the same sandbox or in
// a new one. No container of a pod in a final phase may, and no ephemeral container. An init container that has succeeded
// has completed. It runs again only in a new sandbox of a pod that is always restarted: it may have set up the network of
// the old one. For all others pods.MayRestart has the rule.
func MayRunAgain(pod *corev1.Pod, name string, exitCode int32, newSandbox bool) bool {
	if isFinal(pod.Status.Phase) {
		return false
	}
	all := specified(pod)
	i := slices.IndexFunc(all, func(u container) bool { return u.spec.Name == name })
	return i >= 0 && all[i].mayRunAgain(exitCode, newSandbox)
}

// mayRunAgain is MayRunAgain for a container of a pod whose phase is not final.
func (u *container) mayRunAgain(exitCode int32, newSandbox bool) bool {
	if u.role == initial && exitCode == 0 {
		return u.afresh && newSandbox
	}
	return u.role != ephemeral && pods.MayRestart(u.spec, u.policy, exitCode)
}

// restarts reports whether a container that has ended must be restarted in its sandbox.
func (u *container) restarts() bool {
	return u.exited() && (u.kept.replaced || u.mayRunAgain(u.current.ExitCode, false))
}

// hasOtherImage reports whether the last instance has another image than the spec names.
func (u *container) hasOtherImage() bool {
	return u.current != nil && u.current.Image != "" && u.current.Image != u.spec.Image
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
		return false // no container waits for it
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

// nextBackoff returns the delay between the end of the last instance and the start of the next. Another image starts at
// once.
func (u *container) nextBackoff() time.Duration {
	switch last := u.current; {
	case !u.exited(), last.Attempt == 0, u.hasOtherImage(), last.Finished.Sub(last.Started) >= steadyAfter:
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
