package daemonset

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/pods"
)

// replace takes pods of another revision away, as long as on no more than
// maxUnavailable of the nodes that fit there is no available pod. A pod that is not
// available itself is replaced at once.
func (d *decider) replace(places []*place) {
	unavailable := 0
	for _, at := range places {
		if at.fit == Fitting && !slices.ContainsFunc(at.live, d.isAvailable) {
			unavailable++
		}
	}
	most := max(d.maxUnavailable, 1) // with neither, nothing would ever happen
	for _, at := range places {
		if len(at.live) == 0 || at.crowded || d.isUpdated(at.live[0]) {
			continue
		}
		switch {
		case !d.isAvailable(at.live[0]):
			d.remove(at.live[0])
		case unavailable < most:
			d.remove(at.live[0])
			unavailable++
		}
	}
}

// surge makes pods of the present revision beside those of another, on maxSurge nodes
// at a time, and takes the others away when the new ones are available. Where the other
// one is not available, the new one is not counted.
//
// On nodes that are merely tolerable there is nothing to make. Pods of another revision
// go from there when enough are available without them.
func (d *decider) surge(places []*place) {
	surging, available, needed := 0, 0, 0
	var candidates []string
	var sunset []*corev1.Pod
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
		case now != nil && d.isAvailable(now), now != nil && !pods.IsReady(before):
			d.remove(before)
		case now != nil, at.paused, at.crowded:
			surging++
		case at.fit == Tolerable && d.isAvailable(before):
			sunset = append(sunset, before)
		case at.fit == Tolerable:
			d.remove(before)
		case d.isAvailable(before):
			candidates = append(candidates, at.node)
		default:
			d.plan.Create = append(d.plan.Create, at.node)
		}
	}
	d.plan.Create = append(d.plan.Create, candidates[:min(len(candidates), max(d.maxSurge-surging, 0))]...)
	d.remove(sunset[:min(len(sunset), max(available-needed, 0))]...)
}

// pair are the pod of the present revision on a node and the one of another.
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
