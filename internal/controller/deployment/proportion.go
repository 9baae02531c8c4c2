package deployment

import (
	"cmp"
	"math"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
)

// resizing tells whether the deployment's size was changed since the sets that have
// pods were given theirs.
func (r *rollout) resizing() bool {
	for _, set := range r.sets() {
		if desired, ok := number(set, annotationDesired); ok && *set.Spec.Replicas > 0 && desired != r.size {
			return true
		}
	}
	return false
}

// resize gives the sets that have pods a new size. One alone gets all. In the middle of
// a rollout each keeps its share, so that a change of size neither speeds the rollout up
// nor undoes it: a new template that does not work gets no more than its part.
func (r *rollout) resize() {
	var active []*appsv1.ReplicaSet
	for _, set := range r.sets() {
		if *set.Spec.Replicas > 0 {
			active = append(active, set)
		}
	}
	switch {
	case len(active) == 0 && r.newest != nil && r.d.Spec.Paused:
		*r.newest.Spec.Replicas = r.size
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

// saturated tells whether the new set needs no help of the old ones.
func (r *rollout) saturated() bool {
	if r.newest == nil {
		return false
	}
	desired, ok := number(r.newest, annotationDesired)
	return ok && desired == r.size && *r.newest.Spec.Replicas == r.size && available(r.newest) == r.size
}

// share spreads what is to be added or taken over the sets, by their size. What the
// rounding leaves goes to the first: of sets of one size to the newest when pods are
// added, to the oldest when they are taken.
func (r *rollout) share(active []*appsv1.ReplicaSet) {
	whole := r.size
	if whole > 0 {
		whole += r.surge
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
		*set.Spec.Replicas += part
		left -= part
	}
	*active[0].Spec.Replicas = max(0, *active[0].Spec.Replicas+left)
}

// part is by how much a set would grow if all grew alike.
func (r *rollout) part(set *appsv1.ReplicaSet, whole int32) int32 {
	if r.size == 0 {
		return -*set.Spec.Replicas
	}
	former, ok := number(set, annotationMax)
	if !ok || former == 0 {
		former = max(r.d.Status.Replicas, 1)
	}
	wished := math.Round(float64(*set.Spec.Replicas) * float64(whole) / float64(former))
	return int32(wished) - *set.Spec.Replicas
}
