package deployment

// roll makes the next step of a rolling update: the new set grows as far as the surge
// allows, or else the old ones shrink as far as enough pods stay available.
func (r *rollout) roll() error {
	room := r.size + r.surge - sum(r.older, specReplicas)
	if r.newest == nil {
		return r.makeNewest(max(0, min(room, r.size)))
	}
	now := *r.newest.Spec.Replicas
	switch wished := min(r.size, max(now, room)); {
	case now > r.size:
		*r.newest.Spec.Replicas = r.size
	case wished > now:
		*r.newest.Spec.Replicas = wished
	default:
		r.shrink()
	}
	return nil
}

// shrink takes pods from the old sets. Those that are not available go first: they are
// no loss, but it takes a moment until a pod that was just made is available, so no more
// go than would leave the minimum if none of the new ones came up.
func (r *rollout) shrink() {
	minimum := r.size - r.unavailable
	missing := *r.newest.Spec.Replicas - available(r.newest)
	spare := sum(r.sets(), specReplicas) - minimum - missing
	for _, set := range r.older {
		ill := min(*set.Spec.Replicas-available(set), spare)
		if ill > 0 {
			*set.Spec.Replicas -= ill
			spare -= ill
		}
	}
	spare = min(spare, sum(r.sets(), available)-minimum)
	for _, set := range r.older {
		if spare <= 0 {
			return
		}
		less := min(*set.Spec.Replicas, spare)
		*set.Spec.Replicas -= less
		spare -= less
	}
}
