package lifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/controller/pods"
)

// The defaults of probes.
const (
	defaultPeriod    = 10 * time.Second
	defaultFailures  = 3
	defaultSuccesses = 1
)

// judge updates the health of the living instances from the results of their probes, and stops
// instances whose startup or liveness probe has failed.
func (d *decision) judge() {
	for i := range d.containers {
		u := &d.containers[i]
		if !u.alive() {
			continue
		}
		for kind := range probeKinds {
			if probe := kind.of(u.spec); probe != nil {
				d.judgeProbe(u, kind, probe)
			}
		}
	}
}

func (d *decision) judgeProbe(u *container, kind ProbeKind, probe *corev1.Probe) {
	p := &u.kept.probes[kind]
	switch {
	case p.successes >= orElse(probe.SuccessThreshold, defaultSuccesses):
		p.outcome = passing
	case p.failures >= orElse(probe.FailureThreshold, defaultFailures):
		p.outcome = failing
	default:
		// Between the thresholds the result stays the same.
	}
	if p.outcome == undecided {
		return
	}
	kept := d.state.instance(u.current.ID)
	kept.probes[kind].outcome = p.outcome
	if kind == Readiness || p.outcome == passing || !kept.stopping.IsZero() {
		return
	}
	kept.stopping, kept.grace = d.in.Now, specGrace(d.in.Pod)
	if own := probe.TerminationGracePeriodSeconds; own != nil {
		kept.grace = pods.Seconds(*own)
	}
	u.kept = *kept
}

func orElse(n, fallback int32) int32 {
	if n == 0 {
		return fallback
	}
	return n
}

// probe begins the probes that are due. Only readiness is probed in a terminating pod.
func (d *decision) probe() {
	for i := range d.containers {
		u := &d.containers[i]
		if !u.alive() || u.role == initial || d.in.Gone {
			continue
		}
		started := u.hasStarted()
		for kind := range probeKinds {
			probe := kind.of(u.spec)
			if probe == nil || started == (kind == Startup) || kind != Readiness && (d.intent != run || !u.kept.stopping.IsZero()) {
				continue
			}
			d.probeOnce(u, kind, probe)
		}
	}
}

func (d *decision) probeOnce(u *container, kind ProbeKind, probe *corev1.Probe) {
	due := u.current.Started.Add(pods.Seconds(int64(probe.InitialDelaySeconds)))
	if last := u.kept.probes[kind].last; !last.IsZero() {
		period := pods.Seconds(int64(probe.PeriodSeconds))
		if period == 0 {
			period = defaultPeriod
		}
		due = last.Add(period)
	}
	if d.in.Now.Before(due) {
		d.at(due)
		return
	}
	d.do(Probe{u.current.ID, u.spec.Name, kind})
}
