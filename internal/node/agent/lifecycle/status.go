package lifecycle

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// lost is the exit code of a container whose real one is unknown: the exit code after KILL.
const lost = 137

// deadlineExceeded is the reason for the end of a pod whose activeDeadlineSeconds have expired.
const deadlineExceeded = "DeadlineExceeded"

// status returns the pod's current status. It keeps the fields that others report. Once the API has
// accepted the removal of the pod, the agent reports nothing more.
func (d *decision) status() corev1.PodStatus {
	pod := d.in.Pod
	s := *pod.Status.DeepCopy()
	if d.state.removed || isFinal(s.Phase) && d.neverBegan() {
		return s
	}
	if d.intent == refuse && (d.in.Now.Before(d.in.Rejection.At) || d.anyAlive() || d.anyStarting()) {
		d.at(d.in.Rejection.At)
		return s
	}
	s.ObservedGeneration = pod.Generation
	if s.StartTime == nil {
		now := metav1.NewTime(d.in.Now).Rfc3339Copy()
		s.StartTime = &now
	}
	s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses = nil, nil, nil
	if d.intent == refuse {
		s.Phase, s.Reason, s.Message = corev1.PodFailed, d.in.Rejection.Reason, "Pod was rejected: "+d.in.Rejection.Message
		s.Conditions = withoutOwn(s.Conditions)
		return s
	}
	for i := range d.containers {
		u := &d.containers[i]
		switch u.role {
		case regular:
			s.ContainerStatuses = append(s.ContainerStatuses, d.containerStatus(u))
		case initial, sidecar:
			s.InitContainerStatuses = append(s.InitContainerStatuses, d.containerStatus(u))
		case ephemeral:
			s.EphemeralContainerStatuses = append(s.EphemeralContainerStatuses, d.containerStatus(u))
		}
	}
	sortByName(s.ContainerStatuses) // init containers keep the order of the spec, in which they start
	sortByName(s.EphemeralContainerStatuses)
	d.setAddresses(&s)
	if !isFinal(s.Phase) {
		s.Phase = d.phase(&s)
	}
	if d.intent == expire && s.Phase == corev1.PodFailed {
		s.Reason, s.Message = deadlineExceeded, "Pod was active on the node longer than the specified deadline"
	}
	d.setConditions(&s)
	return s
}

// neverBegan reports whether the node has nothing of the pod, and has never reported anything about it.
func (d *decision) neverBegan() bool {
	return d.in.Observed.Sandbox.ID == "" && !slices.ContainsFunc(d.containers, func(u container) bool { return u.current != nil || u.prior != nil })
}

func (d *decision) setAddresses(s *corev1.PodStatus) {
	if s.HostIP == "" && len(d.in.HostIPs) > 0 {
		s.HostIP, s.HostIPs = d.in.HostIPs[0], nil
		for _, ip := range d.in.HostIPs {
			s.HostIPs = append(s.HostIPs, corev1.HostIP{IP: ip})
		}
	}
	if ips := d.in.Observed.Sandbox.IPs; len(ips) > 0 && s.PodIP != ips[0] {
		s.PodIP, s.PodIPs = ips[0], nil
		for _, ip := range ips {
			s.PodIPs = append(s.PodIPs, corev1.PodIP{IP: ip})
		}
	}
}

// phase returns the pod's phase. It is final only when no container is alive.
func (d *decision) phase(s *corev1.PodStatus) corev1.PodPhase {
	if d.intent != run && !d.anyAlive() && !d.anyStarting() {
		if d.intent != expire && d.allSucceeded(s) {
			return corev1.PodSucceeded
		}
		return corev1.PodFailed
	}
	if s.Phase == corev1.PodRunning {
		return corev1.PodRunning // containers that restart do not undo it
	}
	for i := range d.containers {
		if u := &d.containers[i]; u.role == regular && u.current == nil {
			return corev1.PodPending
		}
	}
	return corev1.PodRunning
}

// allSucceeded reports whether every container has succeeded. A container that never ran has not.
func (d *decision) allSucceeded(s *corev1.PodStatus) bool {
	for _, c := range s.ContainerStatuses {
		if c.State.Terminated == nil || c.State.Terminated.ExitCode != 0 {
			return false
		}
	}
	return true
}

func sortByName(all []corev1.ContainerStatus) {
	slices.SortFunc(all, func(a, b corev1.ContainerStatus) int { return strings.Compare(a.Name, b.Name) })
}

func (d *decision) containerStatus(u *container) corev1.ContainerStatus {
	if u.prior != nil && isFinal(d.in.Pod.Status.Phase) && (u.alive() || u.prior.State.Terminated != nil) {
		return *u.prior.DeepCopy() // a killed agent may have begun to start it before the pod finished
	}
	started := u.hasStarted()
	s := corev1.ContainerStatus{
		Name: u.spec.Name, Image: u.spec.Image, Started: &started, VolumeMounts: mountsOf(u.spec),
		Ready: u.isReady(d.in.Now) && (u.alive() || u.role == initial),
	}
	switch {
	case u.current != nil:
		s.ContainerID, s.ImageID, s.RestartCount = u.current.ID, u.current.ImageID, u.current.Attempt
		s.Image = cmp.Or(u.current.Image, s.Image)
		s.LastTerminationState = u.lastTermination()
		s.State = d.containerState(u)
		if u.current.User != nil {
			s.User = &corev1.ContainerUser{Linux: u.current.User.DeepCopy()}
		}
	case u.prior != nil && u.prior.ContainerID != "":
		s.ContainerID, s.ImageID, s.RestartCount = u.prior.ContainerID, u.prior.ImageID, u.prior.RestartCount
		s.State, s.LastTerminationState = d.lostState(u)
	default:
		s.State = d.neverRan(u)
	}
	d.shorten(&s.State)
	d.shorten(&s.LastTerminationState)
	if u.alive() && u.current.Resources != nil {
		s.Resources, s.AllocatedResources = u.current.Resources.DeepCopy(), u.spec.Resources.Requests.DeepCopy()
	}
	if u.alive() && d.in.Now.Before(u.current.ReadyAt) {
		d.at(u.current.ReadyAt)
	}
	return s
}

// mountsOf returns the volume mounts of a container. None is recursively read-only: no runtime here makes it so.
func mountsOf(c *corev1.Container) []corev1.VolumeMountStatus {
	var all []corev1.VolumeMountStatus
	for _, m := range c.VolumeMounts {
		s := corev1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			s.RecursiveReadOnly = new(corev1.RecursiveReadOnlyDisabled)
		}
		all = append(all, s)
	}
	return all
}

// mostMessages bounds the termination messages of all containers of a pod together, in bytes.
const mostMessages = 12 << 10

// shorten shortens the message of a container that has ended to its share.
func (d *decision) shorten(s *corev1.ContainerState) {
	share := mostMessages / max(1, len(d.containers))
	if s.Terminated != nil && len(s.Terminated.Message) > share {
		s.Terminated = s.Terminated.DeepCopy() // it may be the one in the API
		s.Terminated.Message = strings.ToValidUTF8(s.Terminated.Message[:share], "")
	}
}

// containerState returns the state of a container that has an instance in the runtime.
func (d *decision) containerState(u *container) corev1.ContainerState {
	if u.end != nil {
		return corev1.ContainerState{Terminated: u.end}
	}
	if u.alive() {
		return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: instant(u.current.Started)}}
	}
	if d.intent == run && u.restarts() {
		if waiting := d.waiting(u); waiting != nil {
			return corev1.ContainerState{Waiting: waiting}
		}
	}
	return corev1.ContainerState{Terminated: termination(u.current)}
}

// waiting returns the reason why a container that must be restarted is not running, or nil if its
// start is due.
func (d *decision) waiting(u *container) *corev1.ContainerStateWaiting {
	if f := d.state.failed[u.spec.Name]; f != nil {
		return d.failureOf(u, f)
	}
	switch {
	case u.kept.replaced:
		return d.notYet() // for the API, a terminated container that is never restarted has ended for good
	case !d.in.Now.Before(u.restartAt()):
		return nil
	}
	return &corev1.ContainerStateWaiting{
		Reason: "CrashLoopBackOff",
		Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)",
			u.nextBackoff(), u.spec.Name, d.in.Pod.Name, d.in.Pod.Namespace, d.in.Pod.UID),
	}
}

// failureOf returns the waiting state of a container that failed to start.
func (d *decision) failureOf(u *container, f *failure) *corev1.ContainerStateWaiting {
	if f.reason == errImagePull && f.count > 1 {
		return &corev1.ContainerStateWaiting{
			Reason: "ImagePullBackOff", Message: fmt.Sprintf("Back-off pulling image %q: %s", u.spec.Image, f.message),
		}
	}
	return &corev1.ContainerStateWaiting{Reason: f.reason, Message: f.message}
}

// neverRan returns the state of a container that has had no instance.
func (d *decision) neverRan(u *container) corev1.ContainerState {
	f := d.state.failed[u.spec.Name]
	if f == nil {
		f = d.state.failed[sandbox] // no container starts without a sandbox
	}
	switch {
	case d.intent != run && u.prior != nil && (d.intent == conclude || u.prior.State.Terminated != nil):
		return u.prior.State // it does not change any more
	case d.intent != run && !d.anyAlive() && !d.state.starting(u.spec.Name) && d.mustHaveRun(u):
		return corev1.ContainerState{Terminated: unknownEnd("The container could not be located when the pod was terminated")}
	case f != nil && d.intent == run:
		return corev1.ContainerState{Waiting: d.failureOf(u, f)}
	}
	return corev1.ContainerState{Waiting: d.notYet()}
}

// notYet returns the reason why a container that the runtime does not have is not running.
func (d *decision) notYet() *corev1.ContainerStateWaiting {
	if len(d.in.Pod.Spec.InitContainers) > 0 {
		return &corev1.ContainerStateWaiting{Reason: "PodInitializing"}
	}
	return &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
}

// mustHaveRun reports whether a container without an instance counts as failed after its pod has
// ended. A regular container does if the pod had been initialized. An init container does if it or
// a later one has been started, or if it is the first. The others never ran, and a rule for exit
// codes must not treat them as failures.
func (d *decision) mustHaveRun(u *container) bool {
	switch u.role {
	case regular:
		return d.hadInitialized()
	case initial, sidecar:
		for i := range d.containers {
			if c := &d.containers[i]; c == u {
				return i == 0 || slices.ContainsFunc(d.containers[i+1:], func(c container) bool { return (c.role == initial || c.role == sidecar) && c.hasRun() })
			}
		}
	case ephemeral:
	}
	return false
}

// hadInitialized reports whether the init containers of the pod had completed, as far as the state shows.
func (d *decision) hadInitialized() bool {
	last := len(d.in.Pod.Spec.InitContainers) - 1 // they are the first containers
	if last < 0 || slices.ContainsFunc(d.containers, func(u container) bool { return u.role == regular && u.hasRun() }) {
		return true
	}
	u := &d.containers[last]
	switch prior := u.prior; {
	case u.role == initial:
		return u.succeeded() || prior != nil && (hasSucceeded(prior.State) || hasSucceeded(prior.LastTerminationState))
	case prior != nil:
		return prior.State.Running != nil && prior.Started != nil && *prior.Started
	}
	return false
}

func hasSucceeded(s corev1.ContainerState) bool {
	return s.Terminated != nil && s.Terminated.ExitCode == 0
}

// hasRun reports whether there is, or was, an instance of a container.
func (u *container) hasRun() bool {
	return u.current != nil || u.prior != nil && (u.prior.ContainerID != "" || u.prior.State.Waiting == nil || u.prior.LastTerminationState.Terminated != nil)
}

// lostState returns the state of a container that is in the API but no longer in the runtime.
func (d *decision) lostState(u *container) (state, last corev1.ContainerState) {
	end := u.prior.State.Terminated
	if end == nil {
		end = lostEnd(u.prior)
	}
	if d.intent != run || u.role == initial && end.ExitCode == 0 {
		return corev1.ContainerState{Terminated: end}, u.prior.LastTerminationState
	}
	return corev1.ContainerState{Waiting: d.notYet()}, corev1.ContainerState{Terminated: end}
}

// lostEnd returns the end of a container that the runtime lost.
func lostEnd(prior *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	end := unknownEnd("The container could not be located when the pod was looked at")
	end.ContainerID = prior.ContainerID
	return end
}

func unknownEnd(message string) *corev1.ContainerStateTerminated {
	return &corev1.ContainerStateTerminated{ExitCode: lost, Reason: "ContainerStatusUnknown", Message: message}
}

// lastTermination returns the end of the instance before the current one or, if the container waits
// for its restart, the end of the current one.
func (u *container) lastTermination() corev1.ContainerState {
	switch {
	case u.exited() && u.restarts():
		return corev1.ContainerState{Terminated: termination(u.current)}
	case u.previous != nil && !u.previous.Alive():
		return corev1.ContainerState{Terminated: termination(u.previous)}
	case u.prior != nil && u.prior.RestartCount == u.current.Attempt:
		return u.prior.LastTerminationState
	}
	return corev1.ContainerState{}
}

func termination(i *Instance) *corev1.ContainerStateTerminated {
	reason := "Completed"
	if i.ExitCode != 0 {
		reason = "Error"
	}
	return &corev1.ContainerStateTerminated{
		ExitCode: i.ExitCode, Reason: cmp.Or(i.Reason, reason), Message: i.Message,
		StartedAt: instant(i.Started), FinishedAt: instant(i.Finished), ContainerID: i.ID,
	}
}

// instant returns a time in the API's resolution of one second.
func instant(t time.Time) metav1.Time { return metav1.NewTime(t).Rfc3339Copy() }
