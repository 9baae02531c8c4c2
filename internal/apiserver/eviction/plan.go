// Package eviction serves pods/eviction: a deletion that the pod's PodDisruptionBudget can refuse.
//
//	pod, budgets of its namespace ──▶ decide (pure): which budget must allow it, if any
//	    ──▶ disruptionsAllowed of the budget decreases by one, in a transaction that checks it
//	    ──▶ the pod gets the condition DisruptionTarget
//	    ──▶ DELETE, conditioned on the pod with this condition
//
// The last two steps check that the decision still holds for the pod. If not, the eviction starts
// again.
package eviction

import (
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/kubectl/pkg/util/podutils"

	"github.com/coppice-dev/coppice/internal/controller/pods"
)

const (
	// mostDisrupted is the most evictions that the disruption controller may not have processed
	// yet.
	mostDisrupted = 2000
	// tryAgain is the time in seconds after which the client may try again.
	tryAgain = 10

	violates = "Cannot evict pod as it would violate the pod's disruption budget."
)

// errSeveralBudgets is the error for a pod that more than one budget guards.
var errSeveralBudgets = errors.New("This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.")

// scope is the part of a pod that must not change for a decision to hold. The uid must never
// change.
type scope int

const (
	// anyState: the pod has ended or is being deleted, and neither can be undone.
	anyState scope = iota
	// sameLabels: the decision depends on the budgets that select the pod.
	sameLabels
	// unchanged: the decision depends on the pod's status, or the client requires a
	// resourceVersion.
	unchanged
)

// plan is how a pod may be evicted.
type plan struct {
	// budget is the name of the budget that must allow the eviction; "" if none must.
	budget string
	// about is the part of the pod on which the plan depends.
	about scope
}

// holds reports whether a plan for one state of a pod is valid for another state.
func (p plan) holds(before, now *corev1.Pod) bool {
	if before.UID != now.UID {
		return false
	}
	switch p.about {
	case anyState:
		return true
	case sameLabels:
		return maps.Equal(before.Labels, now.Labels)
	case unchanged:
	}
	return before.ResourceVersion == now.ResourceVersion
}

// unguarded returns the plan for a pod that no budget can protect: it has ended, is pending or is
// terminating.
func unguarded(pod *corev1.Pod) (plan, bool) {
	switch {
	case pods.IsFinished(pod), pods.IsTerminating(pod):
		return plan{about: anyState}, true
	case pod.Status.Phase == corev1.PodPending:
		return plan{about: unchanged}, true
	}
	return plan{}, false
}

// guarded returns the plan for a pod that the budgets of its namespace may protect.
func guarded(pod *corev1.Pod, budgets []policyv1.PodDisruptionBudget) (plan, error) {
	var guard *policyv1.PodDisruptionBudget
	for i := range budgets {
		selector, err := metav1.LabelSelectorAsSelector(budgets[i].Spec.Selector)
		if err != nil || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		if guard != nil {
			return plan{}, errSeveralBudgets
		}
		guard = &budgets[i]
	}
	switch {
	case guard == nil:
		return plan{about: sameLabels}, nil
	case !podutils.IsPodReady(pod) && sparesUnhealthy(guard):
		return plan{about: unchanged}, nil
	}
	return plan{budget: guard.Name, about: sameLabels}, nil
}

// sparesUnhealthy reports whether a pod that is not ready may be evicted without a change to the
// budget, which does not count the pod as healthy.
func sparesUnhealthy(b *policyv1.PodDisruptionBudget) bool {
	if p := b.Spec.UnhealthyPodEvictionPolicy; p != nil && *p == policyv1.AlwaysAllow {
		return true
	}
	return b.Status.CurrentHealthy >= b.Status.DesiredHealthy && b.Status.DesiredHealthy > 0
}

// disrupt records a pod in a budget as disrupted, or returns an error if the budget does not allow
// it.
func disrupt(b *policyv1.PodDisruptionBudget, pod string, now time.Time) error {
	status := &b.Status
	switch {
	case status.ObservedGeneration < b.Generation:
		return stillProcessed(b.Name)
	case status.DisruptionsAllowed < 0:
		return forbidden(b.Name, "pdb disruptions allowed is negative")
	case len(status.DisruptedPods) > mostDisrupted:
		return forbidden(b.Name, "DisruptedPods map too big - too many evictions not confirmed by PDB controller")
	case status.DisruptionsAllowed == 0:
		return tooMany(0, refusal(b))
	}
	status.DisruptionsAllowed--
	if status.DisruptionsAllowed == 0 {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.InsufficientPodsReason,
			ObservedGeneration: status.ObservedGeneration, LastTransitionTime: metav1.NewTime(now),
		})
	}
	if status.DisruptedPods == nil {
		status.DisruptedPods = map[string]metav1.Time{}
	}
	status.DisruptedPods[pod] = metav1.NewTime(now)
	return nil
}

// refusal returns the reason why a budget allows no disruption.
func refusal(b *policyv1.PodDisruptionBudget) string {
	c := meta.FindStatusCondition(b.Status.Conditions, policyv1.DisruptionAllowedCondition)
	explained := c != nil && c.Status == metav1.ConditionFalse && c.Message != ""
	switch {
	case explained && c.Reason == policyv1.SyncFailedReason: // the numbers are not reliable
		return fmt.Sprintf("The disruption budget %s does not allow evicting pods currently because it failed sync: %s", b.Name, c.Message)
	case b.Status.CurrentHealthy <= b.Status.DesiredHealthy:
		return fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently", b.Name, b.Status.DesiredHealthy, b.Status.CurrentHealthy)
	case explained:
		return fmt.Sprintf("The disruption budget %s does not allow evicting pods currently (%s): %s", b.Name, c.Reason, c.Message)
	}
	return fmt.Sprintf("The disruption budget %s does not allow evicting pods currently", b.Name)
}

// stillProcessed is the error while the disruption controller has not observed the latest budget.
func stillProcessed(budget string) error {
	return tooMany(tryAgain, fmt.Sprintf("The disruption budget %s is still being processed by the server.", budget))
}

func tooMany(retryAfter int, cause string) error {
	refused := apierrors.NewTooManyRequests(violates, retryAfter)
	refused.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: cause}}
	return refused
}

func forbidden(budget, why string) error {
	return apierrors.NewForbidden(policyv1.Resource("poddisruptionbudget"), budget, errors.New(why))
}
