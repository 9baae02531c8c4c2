package disruption

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/coppice-dev/coppice/internal/controller/pods"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func stamp(after time.Duration) metav1.Time { return metav1.NewTime(epoch.Add(after)) }

// pod is a pod that is ready.
func pod(name string, changes ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name), Labels: map[string]string{"app": "web"}, CreationTimestamp: stamp(-time.Hour)},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

func unready(p *corev1.Pod) { p.Status.Conditions = nil }

func terminating(p *corev1.Pod) { p.DeletionTimestamp = new(stamp(0)) }

func createdAfter(d time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.CreationTimestamp = stamp(d) }
}

// pdb is a budget of generation 3 for the pods of pod.
func pdb(changes ...func(*policyv1.PodDisruptionBudget)) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "guard", UID: "guard", Generation: 3, ResourceVersion: "7"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}
	for _, change := range changes {
		change(b)
	}
	return b
}

func minAvailable(value string) func(*policyv1.PodDisruptionBudget) {
	return func(b *policyv1.PodDisruptionBudget) { b.Spec.MinAvailable = new(intstr.Parse(value)) }
}

func maxUnavailable(value string) func(*policyv1.PodDisruptionBudget) {
	return func(b *policyv1.PodDisruptionBudget) { b.Spec.MaxUnavailable = new(intstr.Parse(value)) }
}

// evicted enters a pod as disrupted so long ago.
func evicted(name string, ago time.Duration) func(*policyv1.PodDisruptionBudget) {
	return func(b *policyv1.PodDisruptionBudget) {
		if b.Status.DisruptedPods == nil {
			b.Status.DisruptedPods = map[string]metav1.Time{}
		}
		b.Status.DisruptedPods[name] = stamp(-ago)
	}
}

func TestDecideNumbers(t *testing.T) {
	three := []*corev1.Pod{pod("a"), pod("b"), pod("c")}
	oneUnready := []*corev1.Pod{pod("a"), pod("b"), pod("c", unready)}
	type numbers struct{ expected, desired, healthy, allowed int32 }
	for name, test := range map[string]struct {
		budget *policyv1.PodDisruptionBudget
		pods   []*corev1.Pod
		scale  int32
		want   numbers
	}{
		"no pods":                             {pdb(minAvailable("1")), nil, 0, numbers{0, 1, 0, 0}},
		"no pods, and none are needed":        {pdb(minAvailable("0")), nil, 0, numbers{0, 0, 0, 0}},
		"neither minimum nor maximum":         {pdb(), three, 0, numbers{0, 0, 3, 0}},
		"at least some":                       {pdb(minAvailable("2")), three, 0, numbers{3, 2, 3, 1}},
		"at least some, whatever the scale":   {pdb(minAvailable("2")), three, 9, numbers{3, 2, 3, 1}},
		"one is not ready":                    {pdb(minAvailable("2")), oneUnready, 0, numbers{3, 2, 2, 0}},
		"fewer than there must be":            {pdb(minAvailable("5")), three, 0, numbers{3, 5, 3, 0}},
		"half of three is two":                {pdb(minAvailable("50%")), three, 3, numbers{3, 2, 3, 1}},
		"a share is of those that should be":  {pdb(minAvailable("50%")), three, 6, numbers{6, 3, 3, 0}},
		"all of them":                         {pdb(minAvailable("100%")), three, 3, numbers{3, 3, 3, 0}},
		"at most one unavailable":             {pdb(maxUnavailable("1")), three, 3, numbers{3, 2, 3, 1}},
		"one is unavailable":                  {pdb(maxUnavailable("1")), oneUnready, 3, numbers{3, 2, 2, 0}},
		"a third of three is one":             {pdb(maxUnavailable("33%")), three, 3, numbers{3, 2, 3, 1}},
		"more unavailable than there are":     {pdb(maxUnavailable("5")), three, 3, numbers{3, 0, 3, 3}},
		"all may be unavailable, scaled to 0": {pdb(maxUnavailable("100%")), three, 0, numbers{0, 0, 3, 0}},
		"one is being deleted":                {pdb(minAvailable("1")), []*corev1.Pod{pod("a"), pod("b"), pod("c", terminating)}, 0, numbers{3, 1, 2, 1}},
		"one was evicted":                     {pdb(minAvailable("1"), evicted("a", time.Second)), three, 0, numbers{3, 1, 2, 1}},
		"one was evicted long ago":            {pdb(minAvailable("1"), evicted("a", 2*time.Minute)), three, 0, numbers{3, 1, 3, 2}},
	} {
		plan, err := Decide(test.budget, Observed{Pods: test.pods, Scale: test.scale}, epoch)
		got := numbers{plan.Status.ExpectedPods, plan.Status.DesiredHealthy, plan.Status.CurrentHealthy, plan.Status.DisruptionsAllowed}
		if err != nil || got != test.want {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, test.want)
		}
		if plan.Status.ObservedGeneration != 3 {
			t.Errorf("%s: generation %d was observed", name, plan.Status.ObservedGeneration)
		}
		c := meta.FindStatusCondition(plan.Status.Conditions, policyv1.DisruptionAllowedCondition)
		wantStatus, wantReason := metav1.ConditionFalse, policyv1.InsufficientPodsReason
		if test.want.allowed > 0 {
			wantStatus, wantReason = metav1.ConditionTrue, policyv1.SufficientPodsReason
		}
		if c == nil || c.Status != wantStatus || c.Reason != wantReason || c.ObservedGeneration != 3 {
			t.Errorf("%s: %+v, want %s because of %s", name, c, wantStatus, wantReason)
		}
	}
	if plan, err := Decide(pdb(maxUnavailable("many")), Observed{Pods: three}, epoch); err == nil {
		t.Errorf("a share that is none: %+v", plan)
	}
}

func TestDecideDisruptedPods(t *testing.T) {
	for name, test := range map[string]struct {
		budget       *policyv1.PodDisruptionBudget
		pods         []*corev1.Pod
		kept         []string
		requeueAfter time.Duration
		notDeleted   []string
	}{
		"none":                        {pdb(), []*corev1.Pod{pod("a")}, nil, 0, nil},
		"a pod that is to be deleted": {pdb(evicted("a", 30*time.Second)), []*corev1.Pod{pod("a")}, []string{"a"}, 90 * time.Second, nil},
		"two of them":                 {pdb(evicted("a", 30*time.Second), evicted("b", 90*time.Second)), []*corev1.Pod{pod("a"), pod("b")}, []string{"a", "b"}, 30 * time.Second, nil},
		"gone":                        {pdb(evicted("a", time.Second)), []*corev1.Pod{pod("b")}, nil, 0, nil},
		"being deleted":               {pdb(evicted("a", time.Second)), []*corev1.Pod{pod("a", terminating)}, nil, 0, nil},
		"not deleted in time":         {pdb(evicted("a", 2*time.Minute)), []*corev1.Pod{pod("a")}, nil, 0, []string{"a"}},
		"another pod of that name":    {pdb(evicted("a", 30*time.Second)), []*corev1.Pod{pod("a", createdAfter(-20*time.Second))}, nil, 0, nil},
		"created in the same second":  {pdb(evicted("a", 30*time.Second)), []*corev1.Pod{pod("a", createdAfter(-30*time.Second))}, []string{"a"}, 90 * time.Second, nil},
	} {
		plan, err := Decide(test.budget, Observed{Pods: test.pods}, epoch)
		if err != nil {
			t.Fatal(err)
		}
		var notDeleted []string
		for _, p := range plan.NotDeleted {
			notDeleted = append(notDeleted, p.Name)
		}
		if kept := slices.Sorted(maps.Keys(plan.Status.DisruptedPods)); !slices.Equal(kept, test.kept) || plan.RequeueAfter != test.requeueAfter || !slices.Equal(notDeleted, test.notDeleted) {
			t.Errorf("%s: keeps %v, again in %s, not deleted %v", name, kept, plan.RequeueAfter, notDeleted)
		}
	}
}

// The condition says since when it has its status, and a budget in the cache is not changed.
func TestDecideKeepsTheTransitionTime(t *testing.T) {
	first, err := Decide(pdb(minAvailable("1")), Observed{Pods: []*corev1.Pod{pod("a"), pod("b")}}, epoch)
	if err != nil {
		t.Fatal(err)
	}
	budget := pdb(minAvailable("1"))
	budget.Status = first.Status
	for _, step := range []struct {
		pods  []*corev1.Pod
		since time.Duration
	}{
		{[]*corev1.Pod{pod("a"), pod("b"), pod("c")}, 0},
		{[]*corev1.Pod{pod("a")}, time.Hour},
	} {
		plan, err := Decide(budget, Observed{Pods: step.pods}, epoch.Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if got := plan.Status.Conditions[0].LastTransitionTime; !got.Time.Equal(epoch.Add(step.since)) {
			t.Errorf("with %d pods: since %s", len(step.pods), got)
		}
		if budget.Status.Conditions[0].Status != metav1.ConditionTrue {
			t.Fatal("the budget was changed")
		}
	}
}

func TestUncountablePodsAllowNoDisruptions(t *testing.T) {
	budget := pdb(maxUnavailable("1"), evicted("a", time.Second))
	budget.Status.ObservedGeneration, budget.Status.DisruptionsAllowed, budget.Status.CurrentHealthy = 2, 4, 5
	got := Failed(budget, errors.New("nobody knows"), epoch)
	if got.DisruptionsAllowed != 0 || got.CurrentHealthy != 5 || got.ObservedGeneration != 2 || len(got.DisruptedPods) != 1 {
		t.Errorf("%+v", got)
	}
	if c := got.Conditions[0]; c.Status != metav1.ConditionFalse || c.Reason != policyv1.SyncFailedReason || c.Message != "nobody knows" {
		t.Errorf("%+v", c)
	}
	if budget.Status.DisruptionsAllowed != 4 || budget.Status.Conditions != nil {
		t.Errorf("the budget was changed: %+v", budget.Status)
	}
}

// target sets the condition DisruptionTarget so long ago.
func target(status corev1.ConditionStatus, reason string, ago time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		pods.SetCondition(p, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: status, Reason: reason, LastTransitionTime: stamp(-ago)})
	}
}

func TestStaleIn(t *testing.T) {
	const reason = "EvictionByEvictionAPI"
	finished := func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		left time.Duration
		may  bool
	}{
		"no condition":        {pod("a"), 0, false},
		"just set":            {pod("a", target("True", reason, 0)), 2 * time.Minute, true},
		"set long ago":        {pod("a", target("True", reason, 3*time.Minute)), -time.Minute, true},
		"false":               {pod("a", target("False", "", time.Hour)), 0, false},
		"being deleted":       {pod("a", terminating, target("True", reason, time.Hour)), 0, false},
		"has ended":           {pod("a", finished, target("True", reason, time.Hour)), 0, false},
		"the node takes time": {pod("a", target("True", corev1.PodReasonTerminationByKubelet, time.Hour)), 0, false},
	} {
		if left, may := staleIn(test.pod, epoch); left != test.left || may != test.may {
			t.Errorf("%s: %s, %t", name, left, may)
		}
	}
}

func TestWithdrawnConditionIsFalse(t *testing.T) {
	p := pod("a", target("True", "EvictionByEvictionAPI", time.Hour))
	p.Generation = 4
	changed := withdrawn(p, epoch)
	c := pods.Condition(changed, corev1.DisruptionTarget)
	if c.Status != corev1.ConditionFalse || c.Reason != "" || !c.LastTransitionTime.Time.Equal(epoch) || c.ObservedGeneration != 4 {
		t.Errorf("%+v", c)
	}
	if pods.Condition(p, corev1.DisruptionTarget).Status != corev1.ConditionTrue {
		t.Error("the pod in the cache was changed")
	}
}
