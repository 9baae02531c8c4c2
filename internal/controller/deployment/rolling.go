package deployment

// roll plans the next step of a rolling update: the new set is scaled up as far as the surge
// allows, or else the old ones are scaled down as far as enough pods stay available.
func (r *rollout) roll() error {
	allowed := int32(min(max(int64(r.size+r.surge)-sum(r.older, specReplicas), 0), int64(r.size)))
	if r.newest == nil {
		return r.planNewest(allowed)
	}
	now := *r.newest.Spec.Replicas
	switch wanted := min(r.size, max(now, allowed)); {
	case now > r.size:
		*r.newest.Spec.Replicas = r.size
	case wanted > now:
		*r.newest.Spec.Replicas = wanted
	default:
		r.shrink()
	}
	return nil
}

// shrink scales the old sets down. Unavailable pods are removed first. But a pod that was
// just created is unavailable, too, so shrink removes only as many as would leave the
// minimum if none of the new ones became available.
func (r *rollout) shrink() {
	minimum := int64(r.size - r.unavailable)
	missing := int64(*r.newest.Spec.Replicas - available(r.newest))
	spare := sum(r.sets(), specReplicas) - minimum - missing
	for _, set := range r.older {
		unhealthy := min(int64(*set.Spec.Replicas-available(set)), spare)
		if unhealthy > 0 {
			*set.Spec.Replicas -= int32(unhealthy)
			spare -= unhealthy
		}
	}
	spare = min(spare, sum(r.sets(), available)-minimum)
	for _, set := range r.older {
		if spare <= 0 {
			return
		}
		less := min(int64(*set.Spec.Replicas), spare)
		*set.Spec.Replicas -= int32(less)
		spare -= less
	}
}
