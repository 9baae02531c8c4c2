package daemonset

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubectl/pkg/util/podutils"

	"github.com/coppice-dev/coppice/internal/controller/pods"
)

// replace deletes pods of other revisions as long as at most maxUnavailable of the fitting
// nodes lack an available pod. A pod that is itself unavailable is replaced at once.
func (d *decider) replace(places []*place) {
	unavailable := 0
	for _, at := range places {
		if at.fit == Fitting && !slices.ContainsFunc(at.live, d.isAvailable) {
			unavailable++
		}
	}
	limit := max(d.maxUnavailable, 1) // with both limits 0 the rollout would never proceed
	var running []*corev1.Pod
	for _, at := range places {
		switch {
		case len(at.live) == 0, at.crowded, d.isUpdated(at.live[0]):
		case d.isAvailable(at.live[0]):
			running = append(running, at.live[0])
		default:
			d.remove(at.live[0])
		}
	}
	slices.SortStableFunc(running, pods.LessRefused(d.refused))
	d.remove(running[:min(len(running), max(limit-unavailable, 0))]...)
}

// surge creates pods of the current revision beside pods of others, on maxSurge nodes at a
// time, and deletes the old ones when the new ones are available. Nodes whose old pod is
// unavailable do not count against maxSurge.
//
// On nodes that are only tolerable no pod may be created. Pods of other revisions are deleted
// there when enough pods are available without them.
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
	slices.SortStableFunc(surplus, pods.LessRefused(d.refused))
	d.remove(surplus[:min(len(surplus), max(available-needed, 0))]...)
}

// pair returns the pod of the current revision on a node and the pod of another revision.
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
