package daemonset

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubectl/pkg/util/podutils"
)

// replace deletes pods of another revision, as long as no more than maxUnavailable of the
// fitting nodes are without an available pod. A pod that is not available itself is replaced
// at once.
func (d *decider) replace(places []*place) {
	unavailable := 0
	for _, at := range places {
		if at.fit == Fitting && !slices.ContainsFunc(at.live, d.isAvailable) {
			unavailable++
		}
	}
	limit := max(d.maxUnavailable, 1) // without either limit the rollout would never proceed
	for _, at := range places {
		if len(at.live) == 0 || at.crowded || d.isUpdated(at.live[0]) {
			continue
		}
		switch {
		case !d.isAvailable(at.live[0]):
			d.remove(at.live[0])
		case unavailable < limit:
			d.remove(at.live[0])
			unavailable++
		}
	}
}

// surge creates pods of the present revision beside those of another, on maxSurge nodes at a
// time, and deletes the others when the new ones are available. Where the old one is not
// available, the new one does not count.
//
// On nodes that are merely tolerable no pod may be created. Pods of another revision are
// deleted there when enough pods are available without them.
func (d *decider) surge(places []*place) {
	surging, available, needed := 0, 0, 0
	var surgeNodes []string
	var surplus []*corev1.Pod
	for _, at := range places {
		if at.fit == Fitting {
			needed++
		}
		if slices.ContainsFunc(at.live, d.isAvailable) {
			available++
		}
		now, before := d.pair(at)
		switch {
		case before == nil:
		case now != nil && d.isAvailable(now), now != nil && !podutils.IsPodReady(before):
			d.remove(before)
		case now != nil, at.backingOff, at.crowded:
			surging++
		case at.fit == Tolerable && d.isAvailable(before):
			surplus = append(surplus, before)
		case at.fit == Tolerable:
			d.remove(before)
		case d.isAvailable(before):
			surgeNodes = append(surgeNodes, at.node)
		default:
			d.plan.Create = append(d.plan.Create, at.node)
		}
	}
	d.plan.Create = append(d.plan.Create, surgeNodes[:min(len(surgeNodes), max(d.maxSurge-surging, 0))]...)
	d.remove(surplus[:min(len(surplus), max(available-needed, 0))]...)
}

// pair returns the pod of the present revision on a node and the one of another.
func (d *decider) pair(at *place) (now, before *corev1.Pod) {
	for _, pod := range at.live {
		if d.isUpdated(pod) {
			now = pod
		} else {
			before = pod
		}
	}
	return now, before
}
