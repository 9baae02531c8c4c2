// Package deployment rolls out the template of a Deployment: there is a ReplicaSet for each
// template, and the new one is scaled up and the old ones down in steps that keep enough pods
// available.
//
//	deployment, its replica sets, whether old pods still run ──▶ Decide (pure)
//	    ──▶ a replica set to create, others to change or to delete, and the status
//
// Decide is in plan.go, the arithmetic of a rolling update in rolling.go, of scaling during an
// update in proportion.go, the names and annotations of replica sets in revision.go and the
// conditions in status.go. The sizes in the specs limit how many pods a step may remove, since
// statuses lag behind them.
package deployment

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Observed is the state that the caches show.
type Observed struct {
	Deployment *appsv1.Deployment
	// Sets are the replica sets that the deployment controls.
	Sets []*appsv1.ReplicaSet
	// OldPodsRun means that a pod of a template other than the deployment's has not finished.
	// Only the strategy Recreate needs it.
	OldPodsRun bool
}

// Plan is the result of Decide. The objects are copies.
type Plan struct {
	// Create is the replica set of the new template; nil if it exists or has to wait.
	Create *appsv1.ReplicaSet
	// Update are replica sets whose annotations or size change.
	Update []Change
	// Delete are the replica sets beyond the revision history limit.
	Delete []*appsv1.ReplicaSet
	// Revision is the new value of the deployment's annotation; empty if it does not change.
	Revision string
	Status   appsv1.DeploymentStatus
	// Interim is how long Status and Revision may wait to be written, because a later status is expected meanwhile; 0 means
	// not at all.
	Interim time.Duration
	// RequeueAfter is the time until the progress deadline, for which there is no event; 0 means never.
	RequeueAfter time.Duration
}

// Change is a replica set in its desired state.
type Change struct {
	Set *appsv1.ReplicaSet
	// From is the current size.
	From int32
}

// rollout is the working state of Decide.
type rollout struct {
	d    *appsv1.Deployment
	size int32
	// newest is the set with the deployment's template; nil until it exists or is planned.
	newest *appsv1.ReplicaSet
	older  []*appsv1.ReplicaSet // oldest first
	// surge and unavailable are the limits of a rolling update, in pods.
	surge, unavailable int32

	before map[*appsv1.ReplicaSet]*appsv1.ReplicaSet // the set as the cache shows it, by the copy that may be changed
	plan   Plan
}

// Decide plans the next step for a Deployment.
func Decide(seen Observed, now time.Time) (Plan, error) {
	r, err := observe(seen)
	if err != nil {
		return Plan{}, err
	}
	if r.d.DeletionTimestamp == nil {
		if err := r.advance(seen); err != nil {
			return Plan{}, err
		}
		r.describe()
	}
	for _, set := range r.sets() {
		if was := r.before[set]; was != nil && !equality.Semantic.DeepEqual(was, set) {
			r.plan.Update = append(r.plan.Update, Change{set, *was.Spec.Replicas})
		}
	}
	r.status(now)
	r.plan.Interim = r.interim()
	return r.plan, nil
}

func observe(seen Observed) (*rollout, error) {
	r := &rollout{d: seen.Deployment, size: 1, before: map[*appsv1.ReplicaSet]*appsv1.ReplicaSet{}}
	if n := seen.Deployment.Spec.Replicas; n != nil {
		r.size = *n
	}
	if err := r.limits(); err != nil {
		return nil, err
	}
	sets := slices.Clone(seen.Sets)
	slices.SortFunc(sets, func(a, b *appsv1.ReplicaSet) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for _, was := range sets {
		set := was.DeepCopy()
		if set.Spec.Replicas == nil {
			set.Spec.Replicas = new(int32)
			*set.Spec.Replicas = 1
		}
		r.before[set] = set.DeepCopy()
		if r.newest == nil && sameTemplate(&set.Spec.Template, &r.d.Spec.Template) {
			r.newest = set
		} else {
			r.older = append(r.older, set)
		}
	}
	return r, nil
}

// limits sets how far a rolling update may go, in pods. A maxSurge percentage is rounded up, a
// maxUnavailable percentage down; if both are 0, one pod may be unavailable.
func (r *rollout) limits() error {
	rolling := r.d.Spec.Strategy.RollingUpdate
	if r.d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType || rolling == nil {
		return nil
	}
	zero := intstr.FromInt32(0)
	surge, err := intstr.GetScaledValueFromIntOrPercent(cmp.Or(rolling.MaxSurge, &zero), int(r.size), true)
	if err != nil {
		return fmt.Errorf("read maxSurge: %w", err)
	}
	unavailable, err := intstr.GetScaledValueFromIntOrPercent(cmp.Or(rolling.MaxUnavailable, &zero), int(r.size), false)
	if err != nil {
		return fmt.Errorf("read maxUnavailable: %w", err)
	}
	// The surge leaves the whole within the range of a number of replicas.
	r.surge, r.unavailable = atMost(surge, math.MaxInt32-r.size), atMost(unavailable, r.size)
	if r.surge == 0 && r.unavailable == 0 {
		r.unavailable = min(1, r.size)
	}
	return nil
}

// atMost limits a number of pods. A percentage that is too large for a number of pods may have become a negative number.
func atMost(n int, most int32) int32 {
	if n < 0 || n > int(most) {
		return most
	}
	return int32(n)
}

// advance plans the next step of the rollout.
func (r *rollout) advance(seen Observed) error {
	switch {
	case r.d.Spec.Paused:
		r.resize()
		return nil
	case r.resizing():
		r.resize()
		return nil
	case r.d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType:
		if empty := r.emptyOlder(); !empty || seen.OldPodsRun {
			return nil
		}
		if err := r.planNewest(r.size); err != nil {
			return err
		}
		*r.newest.Spec.Replicas = r.size
	default:
		if err := r.roll(); err != nil {
			return err
		}
	}
	r.truncate()
	return nil
}

// emptyOlder scales the older sets to 0, and reports whether they were empty before. Until then their controller may still
// create pods, and no new pod may run beside them.
func (r *rollout) emptyOlder() bool {
	empty := true
	for _, set := range r.older {
		empty = empty && isEmpty(set)
		*set.Spec.Replicas = 0
	}
	return empty
}

// truncate deletes the oldest of the replica sets to which a rollback could return, once the
// rollout is complete.
func (r *rollout) truncate() {
	if r.d.Spec.RevisionHistoryLimit == nil || !r.complete(r.counts()) {
		return
	}
	var idle []*appsv1.ReplicaSet
	for _, set := range r.older {
		if set.DeletionTimestamp == nil && isEmpty(set) {
			idle = append(idle, set)
		}
	}
	slices.SortStableFunc(idle, func(a, b *appsv1.ReplicaSet) int { return cmp.Compare(revisionOf(a), revisionOf(b)) })
	if excess := len(idle) - int(*r.d.Spec.RevisionHistoryLimit); excess > 0 {
		r.plan.Delete = idle[:excess]
	}
}

// sets returns all replica sets, the newest last.
func (r *rollout) sets() []*appsv1.ReplicaSet {
	if r.newest == nil {
		return slices.Clone(r.older)
	}
	return append(slices.Clone(r.older), r.newest)
}

// sum adds up numbers of pods. The sum may exceed the range of the sizes.
func sum(sets []*appsv1.ReplicaSet, of func(*appsv1.ReplicaSet) int32) int64 {
	var total int64
	for _, set := range sets {
		total += int64(of(set))
	}
	return total
}

func specReplicas(set *appsv1.ReplicaSet) int32 { return *set.Spec.Replicas }

// isEmpty reports whether a set has no pods, and its controller has observed that it is to have none.
func isEmpty(set *appsv1.ReplicaSet) bool {
	return *set.Spec.Replicas == 0 && set.Status.Replicas == 0 && set.Status.ObservedGeneration >= set.Generation
}

// available returns how many pods of a set are available and will stay: a set that is scaled
// down deletes at least the rest.
func available(set *appsv1.ReplicaSet) int32 {
	return min(set.Status.AvailableReplicas, *set.Spec.Replicas)
}

// sameTemplate compares templates except for the label pod-template-hash.
func sameTemplate(a, b *corev1.PodTemplateSpec) bool {
	a, b = a.DeepCopy(), b.DeepCopy()
	delete(a.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	delete(b.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	return equality.Semantic.DeepEqual(a, b)
}
