package deployment

import (
	"cmp"
	"math"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
)

// resizing reports whether the deployment was scaled since the sets with pods got their sizes.
func (r *rollout) resizing() bool {
	for _, set := range r.sets() {
		if desired, ok := number(set, annotationDesired); ok && *set.Spec.Replicas > 0 && desired != r.size {
			return true
		}
	}
	return false
}

// resize scales the sets that have pods. A single one gets the whole size. During a rollout
// each set keeps its proportion, so that scaling neither speeds up the rollout nor undoes it:
// a broken new template gets no more than its share. If no set has pods, a paused deployment runs the template that it ran
// last.
func (r *rollout) resize() {
	var active []*appsv1.ReplicaSet
	for _, set := range r.sets() {
		if *set.Spec.Replicas > 0 {
			active = append(active, set)
		}
	}
	switch {
	case len(active) == 0 && r.d.Spec.Paused:
		if latest := r.latest(); latest != nil {
			*latest.Spec.Replicas = r.size
		}
	case len(active) == 0:
	case len(active) == 1:
		*active[0].Spec.Replicas = r.size
	case r.saturated():
		for _, set := range r.older {
			*set.Spec.Replicas = 0
		}
	case r.d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType:
		r.share(active)
	}
}

// latest returns the set with the deployment's template or, while there is none, the one with the highest revision; nil if
// there are no sets.
func (r *rollout) latest() *appsv1.ReplicaSet {
	latest := r.newest
	for _, set := range r.older {
		if r.newest == nil && (latest == nil || revisionOf(set) >= revisionOf(latest)) {
			latest = set
		}
	}
	return latest
}

// saturated reports whether the new set has its full size, and all its pods are available.
func (r *rollout) saturated() bool {
	if r.newest == nil {
		return false
	}
	desired, ok := number(r.newest, annotationDesired)
	return ok && desired == r.size && *r.newest.Spec.Replicas == r.size && available(r.newest) == r.size
}

// share distributes added or removed pods over the sets in proportion to their sizes. The
// rounding remainder goes to the largest set; among sets of equal size, to the newest when
// pods are added and to the oldest when they are removed.
func (r *rollout) share(active []*appsv1.ReplicaSet) {
	whole := int64(r.size)
	if whole > 0 {
		whole += int64(r.surge)
	}
	left := whole - sum(active, specReplicas)
	growing := left > 0
	slices.SortStableFunc(active, func(a, b *appsv1.ReplicaSet) int {
		older := a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
		if growing {
			older = -older
		}
		return cmp.Or(cmp.Compare(*b.Spec.Replicas, *a.Spec.Replicas), older)
	})
	for _, set := range active {
		part := r.part(set, whole)
		if growing {
			part = max(0, min(part, left))
		} else {
			part = min(0, max(part, left))
		}
		*set.Spec.Replicas += int32(part)
		left -= part
	}
	*active[0].Spec.Replicas = int32(max(0, int64(*active[0].Spec.Replicas)+left))
}

// part returns by how much a set would grow if all sets grew in proportion.
func (r *rollout) part(set *appsv1.ReplicaSet, whole int64) int64 {
	size := int64(*set.Spec.Replicas)
	if r.size == 0 {
		return -size
	}
	former, ok := number(set, annotationMax)
	if !ok || former <= 0 {
		former = max(r.d.Status.Replicas, 1)
	}
	// The quotient of two sizes is at most 2^62.
	wanted := math.Round(float64(size) * float64(whole) / float64(former))
	return int64(wanted) - size
}
