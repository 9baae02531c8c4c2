package deployment

import (
	"fmt"
	"math"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/controller/pods"
)

// Reasons of the condition Progressing. kubectl rollout status depends on them.
const (
	reasonCreated    = "NewReplicaSetCreated"
	reasonNotCreated = "ReplicaSetCreateError"
	reasonUpdated    = "ReplicaSetUpdated"
	reasonComplete   = "NewReplicaSetAvailable"
	reasonLate       = "ProgressDeadlineExceeded"
	reasonPaused     = "DeploymentPaused"
	reasonResumed    = "DeploymentResumed"
)

// interim returns how long the status may wait. Nobody waits for the status of a deployment that is being deleted, and a
// replica set that has not reported on its present size is about to do so. Bad news never waits.
func (r *rollout) interim() time.Duration {
	was, s := r.d.Status, r.plan.Status
	switch {
	case r.d.DeletionTimestamp != nil:
		return pods.EndHold
	case s.AvailableReplicas < was.AvailableReplicas, s.ReadyReplicas < was.ReadyReplicas, conditionOf(s.Conditions, appsv1.DeploymentReplicaFailure) != nil:
		return 0
	case r.plan.Create != nil, r.newest != nil && r.newest.Status.ObservedGeneration < r.newest.Generation:
		return pods.MaxStartHold // the controller of replica sets reports earlier
	}
	return 0
}

// counts adds up the statuses of the sets.
func (r *rollout) counts() appsv1.DeploymentStatus {
	var s appsv1.DeploymentStatus
	var terminating int32
	for _, set := range r.sets() {
		s.Replicas += set.Status.Replicas
		s.ReadyReplicas += set.Status.ReadyReplicas
		s.AvailableReplicas += set.Status.AvailableReplicas
		if set.Status.TerminatingReplicas != nil {
			terminating += *set.Status.TerminatingReplicas
		}
	}
	if r.newest != nil {
		s.UpdatedReplicas = r.newest.Status.Replicas
	}
	s.TerminatingReplicas = &terminating
	s.UnavailableReplicas = int32(min(max(0, sum(r.sets(), specReplicas)-int64(s.AvailableReplicas)), math.MaxInt32))
	return s
}

// complete reports whether all pods have the new template and are available.
func (r *rollout) complete(s appsv1.DeploymentStatus) bool {
	return r.newest != nil && r.plan.Create == nil && s.UpdatedReplicas == r.size && s.Replicas == r.size && s.AvailableReplicas == r.size &&
		r.newest.Status.ObservedGeneration >= r.newest.Generation
}

// status plans the status of the deployment.
func (r *rollout) status(now time.Time) {
	was := r.d.Status
	s := r.counts()
	s.ObservedGeneration = r.d.Generation
	s.CollisionCount = was.CollisionCount
	s.Conditions = slices.Clone(was.Conditions)
	conditions := reporter{&s, now}
	if s.AvailableReplicas >= r.size-r.unavailable {
		conditions.set(appsv1.DeploymentAvailable, corev1.ConditionTrue, "MinimumReplicasAvailable", "Deployment has minimum availability.")
	} else {
		conditions.set(appsv1.DeploymentAvailable, corev1.ConditionFalse, "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
	}
	r.failure(conditions)
	r.progress(conditions)
	r.plan.Status = s
}

// failure copies the condition of a set that cannot create or delete its pods.
func (r *rollout) failure(conditions reporter) {
	for _, rs := range slices.Backward(r.sets()) {
		for _, c := range rs.Status.Conditions {
			if c.Type == appsv1.ReplicaSetReplicaFailure {
				conditions.set(appsv1.DeploymentReplicaFailure, c.Status, c.Reason, c.Message)
				return
			}
		}
	}
	conditions.remove(appsv1.DeploymentReplicaFailure)
}

// progress sets the condition Progressing. A completed rollout stays complete when its pods fail
// later. A new rollout starts the clock of the deadline again, whatever the condition says about the
// rollout before.
func (r *rollout) progress(conditions reporter) {
	s, now := conditions.s, conditions.now
	limit := r.d.Spec.ProgressDeadlineSeconds
	if limit == nil || *limit == math.MaxInt32 {
		conditions.remove(appsv1.DeploymentProgressing)
		return
	}
	before := conditionOf(s.Conditions, appsv1.DeploymentProgressing)
	switch {
	case r.d.Spec.Paused:
		conditions.set(appsv1.DeploymentProgressing, corev1.ConditionUnknown, reasonPaused, "Deployment is paused")
		return
	case before != nil && before.Reason == reasonPaused:
		conditions.set(appsv1.DeploymentProgressing, corev1.ConditionUnknown, reasonResumed, "Deployment is resumed")
	case r.plan.Create != nil:
		conditions.set(appsv1.DeploymentProgressing, corev1.ConditionTrue, reasonCreated, "Created new replica set \""+r.plan.Create.Name+"\"")
	case r.newest == nil && r.d.DeletionTimestamp != nil:
		return
	case r.complete(*s):
		conditions.set(appsv1.DeploymentProgressing, corev1.ConditionTrue, reasonComplete, r.quoted()+" has successfully progressed.")
		return
	case before != nil && before.Reason == reasonComplete && r.newest != nil && s.Replicas == s.UpdatedReplicas && r.size == *r.newest.Spec.Replicas:
		return
	case before == nil, before.Reason == reasonComplete, before.Reason == reasonNotCreated, r.isNew(), progressed(r.d.Status, *s):
		conditions.touchProgress()
		conditions.set(appsv1.DeploymentProgressing, corev1.ConditionTrue, reasonUpdated, r.quoted()+" is progressing.")
	case before.Reason == reasonLate:
		return
	case now.Sub(before.LastUpdateTime.Time) >= time.Duration(*limit)*time.Second:
		conditions.set(appsv1.DeploymentProgressing, corev1.ConditionFalse, reasonLate, r.quoted()+" has timed out progressing.")
		return
	}
	c := conditionOf(s.Conditions, appsv1.DeploymentProgressing)
	r.plan.RequeueAfter = max(time.Second, c.LastUpdateTime.Add(time.Duration(*limit)*time.Second).Sub(now))
}

// isNew reports whether no status about the present rollout has been written. Its revision is written with the status,
// which may wait after the creation of the set; while there is no set, there is no revision.
func (r *rollout) isNew() bool {
	return r.plan.Revision != "" || r.newest == nil && r.d.Status.ObservedGeneration < r.d.Generation
}

// progressed reports whether there are more pods of the new set, or fewer of the older ones.
func progressed(was, is appsv1.DeploymentStatus) bool {
	return is.UpdatedReplicas > was.UpdatedReplicas || is.Replicas-is.UpdatedReplicas < was.Replicas-was.UpdatedReplicas ||
		is.ReadyReplicas > was.ReadyReplicas || is.AvailableReplicas > was.AvailableReplicas
}

// notCreated returns the status of a plan whose new set is refused: without the pods of that set, and with the refusal in
// place of the progress. The message of the first refusal stays: texts of refusals may differ, and each write of a status
// causes another attempt at once.
func notCreated(d *appsv1.Deployment, plan Plan, message string, now time.Time) appsv1.DeploymentStatus {
	planned := plan.Status
	planned.UnavailableReplicas = max(0, planned.UnavailableReplicas-specReplicas(plan.Create))
	planned.Conditions = slices.Clone(planned.Conditions)
	c := conditionOf(planned.Conditions, appsv1.DeploymentProgressing)
	if c == nil {
		return planned // there is no deadline
	}
	if before := conditionOf(d.Status.Conditions, appsv1.DeploymentProgressing); before != nil {
		*c = *before
	}
	if c.Reason != reasonNotCreated {
		reporter{&planned, now}.set(appsv1.DeploymentProgressing, corev1.ConditionFalse, reasonNotCreated, message)
	}
	return planned
}

type reporter struct {
	s   *appsv1.DeploymentStatus
	now time.Time
}

// set sets a condition in the status, unless it is unchanged.
func (r reporter) set(kind appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason, message string) {
	c := conditionOf(r.s.Conditions, kind)
	switch {
	case c == nil:
		r.s.Conditions = append(r.s.Conditions, appsv1.DeploymentCondition{Type: kind})
		c = &r.s.Conditions[len(r.s.Conditions)-1]
	case c.Status == status && c.Reason == reason && c.Message == message:
		return
	}
	if c.Status != status {
		c.LastTransitionTime = metav1.NewTime(r.now)
	}
	c.Status, c.Reason, c.Message, c.LastUpdateTime = status, reason, message, metav1.NewTime(r.now)
}

// touchProgress updates the time of the last progress if the condition exists.
func (r reporter) touchProgress() {
	if c := conditionOf(r.s.Conditions, appsv1.DeploymentProgressing); c != nil {
		c.LastUpdateTime = metav1.NewTime(r.now)
	}
}

func (r reporter) remove(kind appsv1.DeploymentConditionType) {
	r.s.Conditions = slices.DeleteFunc(r.s.Conditions, func(c appsv1.DeploymentCondition) bool { return c.Type == kind })
}

// quoted returns the name of the new set or, until it exists, of the deployment.
func (r *rollout) quoted() string {
	if r.newest == nil {
		return fmt.Sprintf("Deployment %q", r.d.Name)
	}
	return fmt.Sprintf("ReplicaSet %q", r.newest.Name)
}
