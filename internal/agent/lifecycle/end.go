package lifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// afterHook is the least time between TERM and KILL if the preStop hook has used up the whole grace
// period.
const afterHook = 2 * time.Second

// killAgain is the delay after which KILL is repeated if the instance is still alive.
const killAgain = time.Second

// end terminates the pod: all containers that are not sidecars at once, then the sidecars in
// reverse order. When the grace period is over, all remaining containers are killed at once.
func (d *decision) end() {
	deadline := d.endOfGrace()
	if !d.endAll(deadline) {
		return
	}
	for i := len(d.containers) - 1; i >= 0; i-- {
		u := &d.containers[i]
		if u.role != sidecar || !u.alive() {
			continue
		}
		d.endInstance(u, d.soonest(u, deadline))
		if d.in.Now.Before(deadline) {
			return // one at a time
		}
	}
}

// endAll terminates all containers that are not sidecars, and reports whether all of them have
// ended.
func (d *decision) endAll(deadline time.Time) bool {
	ended := true
	for i := range d.containers {
		u := &d.containers[i]
		if u.role == sidecar {
			continue
		}
		ended = ended && !u.alive() && !d.state.starting(u.spec.Name)
		if u.alive() {
			d.endInstance(u, d.soonest(u, deadline))
		}
	}
	return ended || !d.in.Now.Before(deadline)
}

// soonest returns the deadline of a container, which is earlier than the pod's if the container was
// already being stopped on its own.
func (d *decision) soonest(u *container, deadline time.Time) time.Time {
	if t := u.kept; !t.stopping.IsZero() && t.stopping.Add(t.grace).Before(deadline) {
		return t.stopping.Add(t.grace)
	}
	return deadline
}

// endOfGrace returns the deadline by which the containers of a terminating pod have to end. For a
// pod that is being deleted the API determines it, and can only shorten it. Deletion does not
// extend the grace period of a pod that was terminating before.
func (d *decision) endOfGrace() time.Time {
	m, pod := d.state, d.in.Pod
	if d.intent == vanish {
		return d.in.Now // a new pod may have the same name already
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
	told := m.leaving.Add(seconds(*pod.DeletionGracePeriodSeconds))
	if wasEnding && end.Before(told) {
		return end
	}
	return told
}

func specGrace(pod *corev1.Pod) time.Duration {
	if own := pod.Spec.TerminationGracePeriodSeconds; own != nil {
		return seconds(*own)
	}
	return corev1.DefaultTerminationGracePeriodSeconds * time.Second
}

// endStopping ends an instance of a pod that keeps running.
func (d *decision) endStopping(u *container) {
	if t := u.kept; !t.stopping.IsZero() {
		d.endInstance(u, t.stopping.Add(t.grace))
	}
}

// endInstance takes the next step towards the end of a living instance: preStop, TERM, KILL.
func (d *decision) endInstance(u *container, deadline time.Time) {
	now, t := d.in.Now, u.kept
	hooked := u.spec.Lifecycle != nil && u.spec.Lifecycle.PreStop != nil
	switch {
	case !t.signaled.IsZero():
		if !t.hookBegan.IsZero() && t.signaled.Add(afterHook).After(deadline) && deadline.After(t.hookBegan) {
			deadline = t.signaled.Add(afterHook)
		}
		if now.Before(deadline) {
			d.at(deadline)
			return
		}
		d.kill(u)
	case hooked && t.hookBegan.IsZero() && now.Before(deadline):
		d.do(PreStop{u.current.ID, u.spec.Name, deadline.Sub(now)})
		d.at(deadline)
	case !t.hookBegan.IsZero() && !t.hookEnded && now.Before(deadline):
		d.at(deadline)
	case now.Before(deadline):
		d.signal(u, deadline.Sub(now))
	case !t.hookBegan.IsZero() && deadline.After(t.hookBegan):
		d.signal(u, afterHook)
	default:
		d.kill(u)
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
