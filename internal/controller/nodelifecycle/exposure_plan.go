package nodelifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/coppice-dev/coppice/internal/controller/pods"
)

// exposure has the taints that a pod tolerates for a limited time, by key. A node has one taint of a key that evicts pods.
// When its value changes, it is still that taint: a client that changes it often would otherwise keep the pod for ever. It is
// immutable.
type exposure map[string]meeting

// meeting has the times at which this process first observed a pod with a taint.
type meeting struct {
	since      time.Time
	value      string
	valueSince time.Time
	// longest is the longest time for which the pod has tolerated one of the values.
	longest time.Duration
}

// observe returns the exposure of a pod to the present taints of its node. It forgets taints that are gone: a taint that is
// added again is tolerated anew. nil means that there is nothing to remember.
func (e exposure) observe(pod *corev1.Pod, taints []corev1.Taint, now time.Time) exposure {
	var next exposure
	for i := range taints {
		taint := &taints[i]
		t := tolerationOf(pod, taint)
		if t.kind != limited {
			continue
		}
		if next == nil {
			next = exposure{}
		}
		m, ok := e[taint.Key]
		if !ok {
			m = meeting{since: now, value: taint.Value, valueSince: now}
		}
		if m.value != taint.Value {
			m.value, m.valueSince = taint.Value, now
		}
		m.longest = max(m.longest, t.length)
		next[taint.Key] = m
	}
	return next
}

// exposed is a pod on a node, with its exposure to the taints of the node.
type exposed struct {
	*corev1.Pod
	since exposure
}

// evictionTime returns the time at which the pod must be evicted from a node with these taints, to which it is exposed:
// never if the second result is false.
//
// Like upstream's controller, this one counts from when it first observed the pod with the taint. After a restart of the
// process, the times in the objects are earlier, and spare the pods of a lost node another wait. But nodes may have been
// silent only because there was no control plane that could listen, and their taints are as old as that. So no pod leaves
// before the nodes have had a grace period to report, or the pod's own time if that is shorter.
//
// A pod may tolerate another value of the taint for a shorter time. That time begins when the value changes, but the pod does
// not stay longer than for the longest time from the beginning.
func (e exposed) evictionTime(taints []corev1.Taint, grace time.Duration) (time.Time, bool) {
	var at time.Time
	leaves := false
	for i := range taints {
		taint := &taints[i]
		var until time.Time // a taint that is not tolerated has no time
		switch t := tolerationOf(e.Pod, taint); t.kind {
		case unlimited:
			continue
		case limited:
			m := e.since[taint.Key]
			until = later(met(e.Pod, taint, m.since).Add(m.longest), m.since.Add(min(m.longest, grace)))
			if sooner := m.valueSince.Add(t.length); sooner.Before(until) {
				until = sooner
			}
		case none:
		}
		if !leaves || until.Before(at) {
			at, leaves = until, true
		}
	}
	return at, leaves
}

// met returns when a pod and a taint met according to their objects; if these do not tell, when they were first observed
// together. Times in the future come from wrong clocks.
func met(pod *corev1.Pod, taint *corev1.Taint, first time.Time) time.Time {
	if taint.TimeAdded == nil {
		return first
	}
	at := later(taint.TimeAdded.Time, pod.CreationTimestamp.Time)
	if c := pods.Condition(pod, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionTrue {
		at = later(at, c.LastTransitionTime.Time)
	}
	if pod.Status.StartTime != nil {
		at = later(at, pod.Status.StartTime.Time)
	}
	if at.After(first) {
		return first
	}
	return at
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// toleration is how long a pod tolerates a taint.
type toleration struct {
	kind   tolerationKind
	length time.Duration // if it is limited
}

type tolerationKind int

const (
	none tolerationKind = iota
	limited
	unlimited
)

// tolerationOf returns how long a pod tolerates a taint: without a limit if the taint evicts no pods. The shortest of
// several tolerations counts.
func tolerationOf(pod *corev1.Pod, taint *corev1.Taint) toleration {
	if taint.Effect != corev1.TaintEffectNoExecute {
		return toleration{kind: unlimited}
	}
	var t toleration
	for i := range pod.Spec.Tolerations {
		one := &pod.Spec.Tolerations[i]
		switch {
		case !one.ToleratesTaint(klog.Background(), taint, false):
		case one.TolerationSeconds != nil:
			if length := pods.Seconds(*one.TolerationSeconds); t.kind != limited || length < t.length {
				t = toleration{limited, length}
			}
		case t.kind == none:
			t.kind = unlimited
		}
	}
	return t
}
