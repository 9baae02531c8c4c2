package eviction

import (
	"errors"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// pod is a pod that is running and ready.
func pod(changes ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web", UID: "first", ResourceVersion: "1", Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{NodeName: "node-1"},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

func unready(p *corev1.Pod) { p.Status.Conditions = nil }

func inPhase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase = phase }
}

func terminating(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(epoch)) }

func labelled(app string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels = map[string]string{"app": app} }
}

// budget is a budget for the pods of pod that allows one disruption.
func budget(changes ...func(*policyv1.PodDisruptionBudget)) policyv1.PodDisruptionBudget {
	b := policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "guard", UID: "guard", Generation: 2, ResourceVersion: "1"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
		Status: policyv1.PodDisruptionBudgetStatus{
			ObservedGeneration: 2, DisruptionsAllowed: 1, CurrentHealthy: 3, DesiredHealthy: 2, ExpectedPods: 3,
			Conditions: []metav1.Condition{{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionTrue, Reason: policyv1.SufficientPodsReason}},
		},
	}
	for _, change := range changes {
		change(&b)
	}
	return b
}

func status(change func(*policyv1.PodDisruptionBudgetStatus)) func(*policyv1.PodDisruptionBudget) {
	return func(b *policyv1.PodDisruptionBudget) { change(&b.Status) }
}

func healthy(current, desired int32) func(*policyv1.PodDisruptionBudget) {
	return status(func(s *policyv1.PodDisruptionBudgetStatus) { s.CurrentHealthy, s.DesiredHealthy = current, desired })
}

func selecting(selector *metav1.LabelSelector) func(*policyv1.PodDisruptionBudget) {
	return func(b *policyv1.PodDisruptionBudget) { b.Spec.Selector = selector }
}

func allowed(n int32) func(*policyv1.PodDisruptionBudget) {
	return status(func(s *policyv1.PodDisruptionBudgetStatus) { s.DisruptionsAllowed = n })
}

// refusing sets the condition DisruptionAllowed to False.
func refusing(reason, message string) func(*policyv1.PodDisruptionBudget) {
	return status(func(s *policyv1.PodDisruptionBudgetStatus) {
		s.DisruptionsAllowed = 0
		s.Conditions = []metav1.Condition{{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: reason, Message: message}}
	})
}

func policy(p policyv1.UnhealthyPodEvictionPolicyType) func(*policyv1.PodDisruptionBudget) {
	return func(b *policyv1.PodDisruptionBudget) { b.Spec.UnhealthyPodEvictionPolicy = &p }
}

func TestEndedPendingAndDeletedPodsNeedNoBudget(t *testing.T) {
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want plan
		ok   bool
	}{
		"running":             {pod(), plan{}, false},
		"running, not ready":  {pod(unready), plan{}, false},
		"of an unknown phase": {pod(inPhase(corev1.PodUnknown)), plan{}, false},
		"succeeded":           {pod(inPhase(corev1.PodSucceeded)), plan{about: anyState}, true},
		"failed":              {pod(inPhase(corev1.PodFailed)), plan{about: anyState}, true},
		"pending":             {pod(inPhase(corev1.PodPending)), plan{about: unchanged}, true},
		"being deleted":       {pod(terminating), plan{about: anyState}, true},
	} {
		if got, ok := unguarded(test.pod); got != test.want || ok != test.ok {
			t.Errorf("%s: %+v, %t", name, got, ok)
		}
	}
}

func TestBudgetsOfAPodDecide(t *testing.T) {
	elsewhere := budget(selecting(&metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}))
	asked, free, spared := plan{"guard", sameLabels}, plan{"", sameLabels}, plan{"", unchanged}
	for name, test := range map[string]struct {
		pod     *corev1.Pod
		budgets []policyv1.PodDisruptionBudget
		want    plan
	}{
		"no budget":                         {pod(), nil, free},
		"a budget for others":               {pod(), []policyv1.PodDisruptionBudget{elsewhere}, free},
		"a budget for none":                 {pod(), []policyv1.PodDisruptionBudget{budget(selecting(nil))}, free},
		"a budget for all":                  {pod(), []policyv1.PodDisruptionBudget{elsewhere, budget(selecting(&metav1.LabelSelector{}))}, asked},
		"a budget":                          {pod(), []policyv1.PodDisruptionBudget{elsewhere, budget()}, asked},
		"a budget that allows nothing":      {pod(), []policyv1.PodDisruptionBudget{budget(allowed(0))}, asked},
		"unhealthy, enough others":          {pod(unready), []policyv1.PodDisruptionBudget{budget(allowed(0), healthy(2, 2))}, spared},
		"unhealthy, too few others":         {pod(unready), []policyv1.PodDisruptionBudget{budget(healthy(1, 2))}, asked},
		"unhealthy, none have to be":        {pod(unready), []policyv1.PodDisruptionBudget{budget(healthy(0, 0))}, asked},
		"unhealthy, if the budget is":       {pod(unready), []policyv1.PodDisruptionBudget{budget(policy(policyv1.IfHealthyBudget), healthy(1, 2))}, asked},
		"unhealthy, always":                 {pod(unready), []policyv1.PodDisruptionBudget{budget(policy(policyv1.AlwaysAllow), healthy(0, 2))}, spared},
		"healthy, the unhealthy are always": {pod(), []policyv1.PodDisruptionBudget{budget(policy(policyv1.AlwaysAllow))}, asked},
	} {
		if got, err := guarded(test.pod, test.budgets); err != nil || got != test.want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if got, err := guarded(pod(), []policyv1.PodDisruptionBudget{budget(), elsewhere, budget()}); !errors.Is(err, errSeveralBudgets) {
		t.Errorf("two budgets: %+v, %v", got, err)
	}
}

func TestPlanHoldsWhileThePodIsTheSame(t *testing.T) {
	newer := func(p *corev1.Pod) { p.ResourceVersion = "2" }
	another := func(p *corev1.Pod) { p.UID = "second" }
	for name, test := range map[string]struct {
		now                            *corev1.Pod
		anyState, sameLabels, sameness bool
	}{
		"as it was":   {pod(), true, true, true},
		"changed":     {pod(newer), true, true, false},
		"labelled":    {pod(newer, labelled("db")), true, false, false},
		"another pod": {pod(another), false, false, false},
	} {
		for about, want := range map[scope]bool{anyState: test.anyState, sameLabels: test.sameLabels, unchanged: test.sameness} {
			if got := (plan{about: about}).holds(pod(), test.now); got != want {
				t.Errorf("%s, scope %d: %t", name, about, got)
			}
		}
	}
}

func TestDisruptionIsTakenFromTheBudget(t *testing.T) {
	for _, left := range []int32{2, 1} {
		b := budget(allowed(left))
		if err := disrupt(&b, "web", epoch); err != nil {
			t.Fatal(err)
		}
		if at, ok := b.Status.DisruptedPods["web"]; b.Status.DisruptionsAllowed != left-1 || !ok || !at.Time.Equal(epoch) {
			t.Errorf("of %d: %+v", left, b.Status)
		}
		if got := meta.IsStatusConditionTrue(b.Status.Conditions, policyv1.DisruptionAllowedCondition); got != (left > 1) {
			t.Errorf("of %d: allowed %t", left, got)
		}
	}
}

func TestDisruptRefused(t *testing.T) {
	crowded := map[string]metav1.Time{}
	for i := range mostDisrupted + 1 {
		crowded[string(rune(i))] = metav1.NewTime(epoch)
	}
	for name, test := range map[string]struct {
		budget policyv1.PodDisruptionBudget
		code   int32
		after  int32
		cause  string
	}{
		"not observed":        {budget(func(b *policyv1.PodDisruptionBudget) { b.Generation = 3 }), http.StatusTooManyRequests, 10, "The disruption budget guard is still being processed by the server."},
		"nothing left":        {budget(allowed(0), healthy(2, 2)), http.StatusTooManyRequests, 0, "The disruption budget guard needs 2 healthy pods and has 2 currently"},
		"not computed":        {budget(refusing(policyv1.SyncFailedReason, "found no controllers"), healthy(1, 2)), http.StatusTooManyRequests, 0, "The disruption budget guard does not allow evicting pods currently because it failed sync: found no controllers"},
		"for another reason":  {budget(refusing("Frozen", "not today")), http.StatusTooManyRequests, 0, "The disruption budget guard does not allow evicting pods currently (Frozen): not today"},
		"for no known reason": {budget(refusing(policyv1.InsufficientPodsReason, "")), http.StatusTooManyRequests, 0, "The disruption budget guard does not allow evicting pods currently"},
		"negative":            {budget(allowed(-1)), http.StatusForbidden, 0, ""},
		"too many unconfirmed": {
			budget(status(func(s *policyv1.PodDisruptionBudgetStatus) { s.DisruptedPods = crowded })), http.StatusForbidden, 0, "",
		},
	} {
		before := test.budget.DeepCopy()
		err := disrupt(&test.budget, "web", epoch)
		answer, ok := errors.AsType[*apierrors.StatusError](err)
		if !ok || answer.ErrStatus.Code != test.code {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if test.budget.Status.DisruptionsAllowed != before.Status.DisruptionsAllowed || len(test.budget.Status.DisruptedPods) != len(before.Status.DisruptedPods) {
			t.Errorf("%s: the budget has lost something: %+v", name, test.budget.Status)
		}
		if test.code != http.StatusTooManyRequests {
			continue
		}
		details := answer.ErrStatus.Details
		if answer.ErrStatus.Message != violates || details.RetryAfterSeconds != test.after || len(details.Causes) != 1 ||
			details.Causes[0].Type != policyv1.DisruptionBudgetCause || details.Causes[0].Message != test.cause {
			t.Errorf("%s: %+v", name, answer.ErrStatus)
		}
	}
}
