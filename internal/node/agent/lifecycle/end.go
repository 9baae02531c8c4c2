package lifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/controller/pods"
)

// LeastGrace is the least time between TERM and KILL, even if the grace period is shorter or the preStop hook took
// all of it.
const LeastGrace = 2 * time.Second

// killAgain is the delay after which KILL is repeated while the instance is alive.
const killAgain = time.Second

// end terminates the pod. It gives up the images that are being pulled. The preStop hooks of all
// containers begin at once. Each container gets TERM after its hook; a sidecar also waits for the
// regular containers and for the sidecars after it. When the grace period is over, all waiting
// ends.
func (d *decision) end() {
	deadline := d.endOfGrace()
	turn := true // of the next sidecar
	for i := range d.containers {
		u := &d.containers[i]
		if d.state.pulls(u.spec.Name) {
			d.do(GiveUp{u.spec.Name})
		}
		if u.role == sidecar {
			continue
		}
		if u.role == regular && (u.alive() || d.state.starting(u.spec.Name)) {
			turn = false
		}
		if u.alive() {
			d.endInstance(u, d.soonest(u, deadline), true)
		}
	}
	for i := len(d.containers) - 1; i >= 0; i-- {
		if u := &d.containers[i]; u.role == sidecar && u.alive() {
			d.endInstance(u, d.soonest(u, deadline), turn)
			turn = false
		}
	}
}

// soonest returns the deadline of a container. It is earlier than the pod's if the container was
// already being stopped on its own.
func (d *decision) soonest(u *container, deadline time.Time) time.Time {
	if t := u.kept; !t.stopping.IsZero() && t.stopping.Add(t.grace).Before(deadline) {
		return t.stopping.Add(t.grace)
	}
	return deadline
}

// endOfGrace returns the deadline for the containers of a terminating pod. The API determines it
// for a deleted pod, and can only shorten it. A deletion does not extend the grace period of a pod
// that was already terminating.
func (d *decision) endOfGrace() time.Time {
	m, pod := d.state, d.in.Pod
	if d.intent == vanish {
		return d.in.Now // a new pod may already have the same name
	}
	if m.ending.IsZero() {
		m.ending = d.in.Now
		if d.intent == leave {
			m.leaving = d.in.Now
		}
	}
	end := m.ending.Add(specGrace(pod))
	if d.intent != leave || pod.DeletionGracePeriodSeconds == nil {
		return end
	}
	wasEnding := m.leaving.IsZero() || m.leaving.After(m.ending)
	if m.leaving.IsZero() {
		m.leaving = d.in.Now
	}
	told := m.leaving.Add(pods.Seconds(*pod.DeletionGracePeriodSeconds))
	if wasEnding && end.Before(told) {
		return end
	}
	return told
}

func specGrace(pod *corev1.Pod) time.Duration {
	if own := pod.Spec.TerminationGracePeriodSeconds; own != nil {
		return pods.Seconds(*own)
	}
	return corev1.DefaultTerminationGracePeriodSeconds * time.Second
}

// endStopping ends an instance of a pod that keeps running.
func (d *decision) endStopping(u *container) {
	if t := u.kept; !t.stopping.IsZero() {
		d.endInstance(u, t.stopping.Add(t.grace), true)
	}
}

// endInstance takes the next step towards the end of a living instance: preStop, TERM in its turn,
// KILL.
func (d *decision) endInstance(u *container, deadline time.Time, turn bool) {
	now, t := d.in.Now, u.kept
	hooked := u.spec.Lifecycle != nil && u.spec.Lifecycle.PreStop != nil
	switch inTime := now.Before(deadline); {
	case d.intent == vanish:
		d.kill(u)
	case !t.signaled.IsZero():
		if least := t.signaled.Add(LeastGrace); deadline.Before(least) {
			deadline = least
		}
		if now.Before(deadline) {
			d.at(deadline)
			return
		}
		d.kill(u)
	case inTime && hooked && t.hookBegan.IsZero():
		d.do(PreStop{u.current.ID, u.spec.Name, deadline.Sub(now)})
		d.at(deadline)
	case inTime && (!turn || !t.hookBegan.IsZero() && !t.hookEnded):
		d.at(deadline)
	case !inTime && d.state.failed[u.current.ID] != nil: // TERM could not be sent
		d.kill(u)
	default:
		d.signal(u, max(deadline.Sub(now), LeastGrace))
	}
}

func (d *decision) signal(u *container, grace time.Duration) {
	d.try(u.current.ID, Signal{u.current.ID, u.spec.Name, grace})
	d.at(d.in.Now.Add(grace))
}

// kill kills an instance if it is alive.
func (d *decision) kill(u *container) {
	if !u.alive() {
		return
	}
	if killed := u.kept.killed; !killed.IsZero() && d.in.Now.Before(killed.Add(killAgain)) {
		d.at(killed.Add(killAgain))
		return
	}
	d.try(u.current.ID, Kill{u.current.ID, u.spec.Name})
}
