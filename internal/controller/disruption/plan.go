// Package disruption is the disruption controller: it maintains the status of
// PodDisruptionBudgets, which the API server checks before it evicts a pod.
//
//	budget, the pods that it selects, the scales of their controllers ──▶ Decide (pure) ──▶ the
//	    status, in one write that fails if the budget has changed: an eviction changes it, too
//
// If the number of expected pods cannot be determined, no disruption is allowed.
//
// The package also sets the condition DisruptionTarget to False on pods whose announced
// deletion did not happen.
package disruption

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kubectl/pkg/util/podutils"

	"github.com/coppice-dev/coppice/internal/controller/pods"
)

const (
	// deletionTimeout is how long an evicted pod counts as disrupted without being deleted. After
	// that, it will not be deleted.
	deletionTimeout = 2 * time.Minute
	// staleTimeout is how long a pod that is not being deleted may have the condition
	// DisruptionTarget.
	staleTimeout = 2 * time.Minute
)

// Observed is the input for the status of a budget.
type Observed struct {
	// Pods are the pods that the budget selects.
	Pods []*corev1.Pod
	// Scale is the total number of pods that their controllers should run. It matters only if
	// NeedsScale.
	Scale int32
}

// Plan is the result of Decide for a budget.
type Plan struct {
	Status policyv1.PodDisruptionBudgetStatus
	// RequeueAfter is the time until the next evicted pod counts as healthy again; 0 means never.
	RequeueAfter time.Duration
	// NotDeleted are pods that were evicted and have not been deleted.
	NotDeleted []*corev1.Pod
}

// NeedsScale reports whether a budget depends on the desired number of pods, not only on the
// actual one.
func NeedsScale(b *policyv1.PodDisruptionBudget) bool {
	return b.Spec.MaxUnavailable != nil || b.Spec.MinAvailable != nil && b.Spec.MinAvailable.Type == intstr.String
}

// Decide computes the status of a budget.
func Decide(b *policyv1.PodDisruptionBudget, seen Observed, now time.Time) (Plan, error) {
	expected := expectedPods(b, seen)
	desired, err := desiredHealthy(b, expected)
	if err != nil {
		return Plan{}, err
	}
	plan := Plan{Status: policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: b.Generation, ExpectedPods: expected, DesiredHealthy: desired, Conditions: slices.Clone(b.Status.Conditions),
	}}
	plan.keepDisrupted(b, seen.Pods, now)
	for _, pod := range seen.Pods {
		_, leaves := plan.Status.DisruptedPods[pod.Name]
		if !leaves && !pods.IsTerminating(pod) && podutils.IsPodReady(pod) {
			plan.Status.CurrentHealthy++
		}
	}
	// A budget that selects no pods allows no disruption: the first pods may appear before the
	// status is computed again.
	if expected > 0 {
		plan.Status.DisruptionsAllowed = max(plan.Status.CurrentHealthy-desired, 0)
	}
	condition := metav1.Condition{Status: metav1.ConditionFalse, Reason: policyv1.InsufficientPodsReason}
	if plan.Status.DisruptionsAllowed > 0 {
		condition = metav1.Condition{Status: metav1.ConditionTrue, Reason: policyv1.SufficientPodsReason}
	}
	setAllowed(&plan.Status, condition, now)
	return plan, nil
}

// Failed returns the status of a budget that cannot be computed: it allows no disruption, and
// keeps the other fields of the last status.
func Failed(b *policyv1.PodDisruptionBudget, reason error, now time.Time) policyv1.PodDisruptionBudgetStatus {
	status := *b.Status.DeepCopy()
	status.DisruptionsAllowed = 0
	setAllowed(&status, metav1.Condition{Status: metav1.ConditionFalse, Reason: policyv1.SyncFailedReason, Message: reason.Error()}, now)
	return status
}

// setAllowed sets the condition DisruptionAllowed.
func setAllowed(status *policyv1.PodDisruptionBudgetStatus, c metav1.Condition, now time.Time) {
	c.Type, c.ObservedGeneration, c.LastTransitionTime = policyv1.DisruptionAllowedCondition, status.ObservedGeneration, metav1.NewTime(now)
	meta.SetStatusCondition(&status.Conditions, c)
}

// expectedPods returns the number of pods that percentages in minAvailable and maxUnavailable
// refer to.
func expectedPods(b *policyv1.PodDisruptionBudget, seen Observed) int32 {
	switch {
	case NeedsScale(b):
		return seen.Scale
	case b.Spec.MinAvailable != nil:
		return int32(len(seen.Pods))
	}
	return 0
}

// desiredHealthy returns the minimum number of healthy pods.
func desiredHealthy(b *policyv1.PodDisruptionBudget, expected int32) (int32, error) {
	switch {
	case b.Spec.MaxUnavailable != nil:
		n, err := share(b.Spec.MaxUnavailable, expected)
		return max(expected-n, 0), err
	case b.Spec.MinAvailable != nil:
		return share(b.Spec.MinAvailable, expected)
	}
	return 0, nil
}

// share returns a number of pods, or a percentage of the expected pods, rounded up.
func share(value *intstr.IntOrString, of int32) (int32, error) {
	n, err := intstr.GetScaledValueFromIntOrPercent(value, int(of), true)
	if err != nil {
		return 0, fmt.Errorf("a share of %d pods: %w", of, err)
	}
	return int32(n), nil
}

// keepDisrupted keeps the entries of evicted pods that still have to be deleted.
func (p *Plan) keepDisrupted(b *policyv1.PodDisruptionBudget, selected []*corev1.Pod, now time.Time) {
	for _, pod := range selected {
		evicted, ok := b.Status.DisruptedPods[pod.Name]
		// A pod that was created later only shares the name of the evicted one. Times are stored in
		// whole seconds.
		if !ok || pods.IsTerminating(pod) || pod.CreationTimestamp.Unix() > evicted.Unix() {
			continue
		}
		left := evicted.Add(deletionTimeout).Sub(now)
		if left <= 0 {
			p.NotDeleted = append(p.NotDeleted, pod)
			continue
		}
		if p.Status.DisruptedPods == nil {
			p.Status.DisruptedPods = map[string]metav1.Time{}
		}
		p.Status.DisruptedPods[pod.Name] = evicted
		if p.RequeueAfter == 0 || left < p.RequeueAfter {
			p.RequeueAfter = left
		}
	}
}

// staleIn returns the time until the condition DisruptionTarget of a pod is stale, zero or
// negative if it is stale. The second result is false for a pod whose condition never becomes
// stale: it has no such condition, is being deleted, has ended, or is being ended by its node,
// which may take any time.
func staleIn(pod *corev1.Pod, now time.Time) (time.Duration, bool) {
	c := pods.Condition(pod, corev1.DisruptionTarget)
	if c == nil || c.Status != corev1.ConditionTrue || c.Reason == corev1.PodReasonTerminationByKubelet || !pods.IsActive(pod) {
		return 0, false
	}
	return c.LastTransitionTime.Add(staleTimeout).Sub(now), true
}

// withdrawn returns a pod whose condition DisruptionTarget is False.
func withdrawn(pod *corev1.Pod, now time.Time) *corev1.Pod {
	changed := pod.DeepCopy()
	pods.SetCondition(changed, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionFalse, ObservedGeneration: pod.Generation, LastTransitionTime: metav1.NewTime(now),
	})
	return changed
}
