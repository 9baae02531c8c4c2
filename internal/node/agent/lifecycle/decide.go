package lifecycle

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/coppice-dev/coppice/internal/controller/pods"
)

// Input is the input of a decision.
type Input struct {
	// Pod is the pod in the API, or its last known state; it is not modified.
	Pod *corev1.Pod
	// Gone means that the pod is no longer in the API.
	Gone bool
	// Rejection is the reason why the node does not run the pod. Nil: the node runs it.
	Rejection *Rejection
	Observed  Observed
	// HostIPs are the addresses of the node, the primary one first.
	HostIPs []string
	Now     time.Time
}

// Rejection is the reason why a node does not run a pod that is bound to it. The pod fails.
type Rejection struct {
	Reason, Message string
	// At is the earliest time to report it.
	At time.Time
}

// Decide decides what to do about a pod. It records the steps of the plan in m as begun. The caller
// carries them out and reports their results with m.Finished.
func Decide(in Input, m *State) Plan {
	if in.Observed.Unknown {
		return Plan{Status: in.Pod.Status}
	}
	d := &decision{in: in, state: m, containers: containersOf(in.Pod, &in.Observed, m)}
	d.judge()
	d.intent = d.intend()
	if d.intent == run {
		d.run()
	} else {
		d.end()
	}
	d.probe()
	d.tidy()
	return Plan{Steps: d.steps, Events: d.events, Status: d.status(), Next: d.next}
}

// intent is the decision about the pod as a whole.
type intent int

const (
	run      intent = iota
	vanish          // it is no longer in the API
	leave           // it is being deleted
	expire          // it has been active for longer than activeDeadlineSeconds
	finish          // its containers have ended and will not be restarted
	conclude        // its phase in the API is final
	refuse          // the node does not run it
)

// decision is the state of one call of Decide.
type decision struct {
	in         Input
	state      *State
	containers []container
	intent     intent
	steps      []Step
	events     []Event
	next       time.Time
}

// intend returns the intent for the pod. The strongest reason counts.
func (d *decision) intend() intent {
	pod := d.in.Pod
	finished, at := d.hasFinished()
	switch {
	case d.in.Gone:
		return vanish
	case pod.DeletionTimestamp != nil:
		return leave
	case isFinal(pod.Status.Phase):
		return conclude
	case d.in.Rejection != nil:
		return refuse
	case d.expired() && (!finished || !at.Before(d.deadline())):
		return expire
	case finished:
		return finish
	}
	d.at(d.deadline())
	return run
}

func isFinal(p corev1.PodPhase) bool { return p == corev1.PodSucceeded || p == corev1.PodFailed }

// deadline returns when activeDeadlineSeconds expires, or zero if it is not set.
func (d *decision) deadline() time.Time {
	limit, began := d.in.Pod.Spec.ActiveDeadlineSeconds, d.in.Pod.Status.StartTime
	if limit == nil || began == nil {
		return time.Time{}
	}
	return began.Add(pods.Seconds(*limit))
}

// expired reports whether activeDeadlineSeconds has expired.
func (d *decision) expired() bool {
	deadline := d.deadline()
	return !deadline.IsZero() && !d.in.Now.Before(deadline)
}

// hasFinished reports whether and when the containers have ended without a restart: all regular
// containers, or a failed init container.
func (d *decision) hasFinished() (finished bool, at time.Time) {
	finished = true
	for i := range d.containers {
		u := &d.containers[i]
		switch {
		case u.role == initial && u.isOver() && !u.succeeded():
			return true, u.current.Finished
		case u.role == regular && !u.isOver():
			finished = false
		case u.role == regular && u.current.Finished.After(at):
			at = u.current.Finished
		}
	}
	return finished, at
}

// initialized reports whether the init containers have completed. They count as completed once a
// regular container has run in the sandbox: a sidecar that restarts later does not stop the others.
func (d *decision) initialized() bool {
	return !slices.ContainsFunc(d.containers, func(u container) bool {
		return u.role == initial && !u.succeeded() || u.role == sidecar && !u.hasStarted()
	}) || slices.ContainsFunc(d.containers, func(u container) bool { return u.role == regular && u.current != nil && u.end == nil })
}

// run begins the missing steps for the pod to run.
func (d *decision) run() {
	if !d.hasSandbox() {
		return
	}
	d.debug()
	initialized := d.initialized()
	for i := range d.containers {
		u := &d.containers[i]
		switch {
		case u.role == ephemeral:
		case u.alive():
			d.resize(u)
			d.replace(u)
			d.endStopping(u)
		case u.isOver(), u.role == initial && initialized:
		default:
			d.start(u)
		}
		if !initialized && !d.mayPass(u) {
			return
		}
	}
}

// resize begins to resize a container whose resources differ from its spec.
func (d *decision) resize(u *container) {
	has, asked := u.current.Resources, &u.spec.Resources
	if has != nil && (!sameAmounts(has.Requests, asked.Requests) || !sameAmounts(has.Limits, asked.Limits)) {
		d.try(u.current.ID, Resize{u.current.ID, u.spec.Name})
	}
}

// replace begins to stop an instance if its container's spec names another image. A running init container is not
// replaced.
func (d *decision) replace(u *container) {
	if u.role == initial || !u.hasOtherImage() || !u.kept.stopping.IsZero() {
		return
	}
	kept := d.state.instance(u.current.ID)
	kept.stopping, kept.grace, kept.replaced = d.in.Now, specGrace(d.in.Pod), true
	u.kept = *kept
}

func sameAmounts(a, b corev1.ResourceList) bool {
	return maps.EqualFunc(a, b, func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 })
}

// debug starts the ephemeral containers. They wait for no other container, because they may have to
// debug an init container that hangs.
func (d *decision) debug() {
	for i := range d.containers {
		if u := &d.containers[i]; u.role == ephemeral && u.current == nil {
			d.start(u)
		}
	}
}

// mayPass reports whether the containers after an init container may start.
func (d *decision) mayPass(u *container) bool {
	switch u.role {
	case initial:
		return u.succeeded()
	case sidecar:
		return u.hasStarted()
	case regular, ephemeral:
	}
	return true
}

// hasSandbox reports whether the pod has a sandbox to run in. If not, it begins to create one.
func (d *decision) hasSandbox() bool {
	s := d.in.Observed.Sandbox
	switch {
	case s.Ready:
		return true
	case s.ID == "":
		attempt := int32(0)
		d.try(sandbox, CreateSandbox{Attempt: attempt})
	case d.anyAlive():
		for i := range d.containers {
			d.kill(&d.containers[i])
		}
	case !d.endsAreReported():
		// Only the runtime knows how the containers ended until the status has been written.
	default:
		// The network of the sandbox is gone, and with it all containers. Attempt numbers continue.
		d.try(s.ID, RemoveSandbox{ID: s.ID})
	}
	return false
}

func (d *decision) start(u *container) {
	if d.state.starting(u.spec.Name) {
		if d.state.pulls(u.spec.Name) && !d.state.startingWith(u.spec.Name, u.spec.Image) {
			d.do(GiveUp{u.spec.Name})
		}
		return
	}
	if at := u.restartAt(); d.in.Now.Before(at) {
		d.at(at)
		return
	}
	if f := d.state.failed[u.spec.Name]; f != nil && f.image != u.spec.Image {
		delete(d.state.failed, u.spec.Name)
	}
	d.try(u.spec.Name, Start{Container: u.spec.Name, Image: u.spec.Image, Attempt: u.nextAttempt(), Backoff: u.nextBackoff()})
}

// tidy removes instances other than the last two of a container, and all instances of a pod that has ended.
func (d *decision) tidy() {
	for i := range d.in.Observed.Instances {
		instance := &d.in.Observed.Instances[i]
		if !instance.Alive() && !d.keeps(instance) {
			d.try(instance.ID, Remove{ID: instance.ID})
		}
	}
	if d.intent == run || d.anyAlive() || d.anyStarting() {
		return
	}
	if s := d.in.Observed.Sandbox; s.ID != "" {
		d.tidySandbox(s)
		return
	}
	if d.intent == leave && isFinal(d.in.Pod.Status.Phase) && !d.state.underWay(CreateSandbox{}) {
		d.try(removal, Delete{})
	}
}

// tidySandbox frees the resources of a pod that has ended. The dead containers of a finished pod
// can be inspected until it is deleted, and until the status has been written only the runtime
// knows how they ended. A sandbox whose own process has died still has its address, until it is stopped.
func (d *decision) tidySandbox(s Sandbox) {
	switch {
	case d.intent == leave && d.endIsReported() || d.intent == vanish:
		d.try(s.ID, RemoveSandbox{ID: s.ID, Final: true})
	case d.intent == leave || d.intent == refuse:
	case s.Ready, s.NoAddress, d.state.stopped != s.ID:
		d.try(s.ID, StopSandbox{ID: s.ID})
	}
}

// endIsReported reports whether the status in the API is final for the pod and for each of its
// containers.
func (d *decision) endIsReported() bool {
	return isFinal(d.in.Pod.Status.Phase) && !slices.ContainsFunc(d.containers, func(u container) bool {
		return u.current != nil && (u.prior == nil || u.prior.State.Terminated == nil)
	})
}

// endsAreReported reports whether the status in the API has the end of each container that has ended for good.
func (d *decision) endsAreReported() bool {
	return !slices.ContainsFunc(d.containers, func(u container) bool { return u.isOver() && !u.isReported() })
}

// isReported reports whether the status in the API has the end of the last instance.
func (u *container) isReported() bool {
	return u.prior != nil && u.prior.State.Terminated != nil && u.prior.ContainerID == u.current.ID
}

func (d *decision) keeps(instance *Instance) bool {
	return slices.ContainsFunc(d.containers, func(u container) bool { return instance == u.current || instance == u.previous })
}

func (d *decision) anyAlive() bool {
	return slices.ContainsFunc(d.in.Observed.Instances, func(i Instance) bool { return i.Alive() })
}

func (d *decision) anyStarting() bool {
	return slices.ContainsFunc(d.containers, func(u container) bool { return d.state.starting(u.spec.Name) })
}

// do begins a step unless it is already under way.
func (d *decision) do(s Step) {
	events := d.eventsOf(s)
	if d.state.begin(s, d.in.Now) {
		d.steps, d.events = append(d.steps, s), append(d.events, events...)
	}
}

// try begins a step unless it is already under way or in back-off after a failure.
func (d *decision) try(what string, s Step) {
	if at := d.state.retryAt(what); d.in.Now.Before(at) {
		d.at(at)
		return
	}
	d.do(s)
}

// at requests another decision at time t, unless an earlier one is due.
func (d *decision) at(t time.Time) {
	if t.After(d.in.Now) && (d.next.IsZero() || t.Before(d.next)) {
		d.next = t
	}
}
