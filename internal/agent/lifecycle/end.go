package lifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// afterHook is what a container has between TERM and KILL at least, when its preStop hook
// took the whole grace period.
const afterHook = 2 * time.Second

// killAgain is when an instance that was killed and is alive is killed once more.
const killAgain = time.Second

// end ends the pod: all containers that are no sidecars at once, then the sidecars, the
// last one first. When the grace period is over, all at once.
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

// endAll ends what is no sidecar, and reports whether all of it has ended.
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

// soonest returns when a container has to have ended, which may be stopped itself.
func (d *decision) soonest(u *container, deadline time.Time) time.Time {
	if t := u.kept; !t.stopping.IsZero() && t.stopping.Add(t.grace).Before(deadline) {
		return t.stopping.Add(t.grace)
	}
	return deadline
}

// endOfGrace returns when the containers of a pod that is to end have to have ended. Of a pod
// that is being deleted the API tells how long they have, and only ever makes it shorter;
// one that ended already before that has no longer for being deleted.
func (d *decision) endOfGrace() time.Time {
	m, pod := d.state, d.in.Pod
	if d.intent == vanish {
		return d.in.Now // there may be another of that name already
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

// endStopping ends an instance of a pod that goes on.
func (d *decision) endStopping(u *container) {
	if t := u.kept; !t.stopping.IsZero() {
		d.endInstance(u, t.stopping.Add(t.grace))
	}
}

// endInstance takes the next step on the way of a living instance to its end: preStop,
// TERM, KILL.
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

// kill ends an instance at once, if it is alive.
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
