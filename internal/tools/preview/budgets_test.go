package preview_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// TestExceededBudgetIsNamed: the prediction names a budget that the deletion exceeds, with the pods that count: those
// that are ready, selected, and not being deleted already.
func TestExceededBudgetIsNamed(t *testing.T) {
	budget := func(name, label string, allowed int32) policyv1.PodDisruptionBudget {
		b := policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)}}
		b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": label}}
		b.Status.DisruptionsAllowed = allowed
		return b
	}
	all := []policyv1.PodDisruptionBudget{
		budget("web", "web", 1), budget("enough", "web", 2), budget("other", "db", 0), budget("owner", "web", 0),
		{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: "web"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}}},
	}
	inv := cluster(t, "Node n1", "ConfigMap owner", "Pod a < owner @ n1", "Pod b < owner @ n1", "Pod ended < owner @ n1",
		"Pod unready < owner @ n1", "Pod leaving < owner @ n1 deleting", "Pod stays @ n1")
	for uid, pod := range inv.Pods {
		pod.Phase, pod.Ready = corev1.PodRunning, uid != "unready"
		inv.Object(uid).Labels = inventory.Labels{{Name: "app", Value: "web"}}
	}
	inv.Pods["ended"].Phase = corev1.PodSucceeded
	asked := []string{}
	p := preview.New(inv).Predict(requests("Background", "owner"), preview.Options{Now: now()})
	p.AddBudgets(inv, func(namespace string) inventory.Fact[[]policyv1.PodDisruptionBudget] {
		asked = append(asked, namespace)
		return inventory.Fact[[]policyv1.PodDisruptionBudget]{Value: all}
	})
	if got, want := fmt.Sprint(p.Budgets), "[{shop web 1 [a b]}]"; got != want {
		t.Errorf("budgets %s, want %s", got, want)
	}
	if !slices.Equal(asked, []string{"shop"}) {
		t.Errorf("asked for the budgets of %q", asked)
	}
	const says = "PodDisruptionBudget shop/web allows 1 of its pods to be disrupted, and 2 go: it holds evictions, and no DELETE."
	if r := p.Report(inv); len(r.Budgets) != 1 || r.Budgets[0].String() != says {
		t.Errorf("%+v", r.Budgets)
	}
}

// The prediction reports budgets that could not be read; if no pods are deleted, it reads none.
func TestUnreadBudgetsAreReported(t *testing.T) {
	inv := cluster(t, "Node n1", "Pod a @ n1", "ConfigMap c")
	inv.Pods["a"].Phase, inv.Pods["a"].Ready = corev1.PodRunning, true
	for target, want := range map[string]int{"a": 1, "c": 0} {
		p := preview.New(inv).Predict(requests("Background", target), preview.Options{Now: now()})
		p.AddBudgets(inv, func(string) inventory.Fact[[]policyv1.PodDisruptionBudget] {
			return inventory.Fact[[]policyv1.PodDisruptionBudget]{Unread: "forbidden"}
		})
		if len(p.Unread) != want {
			t.Errorf("%s: unread is %v", target, p.Unread)
		}
	}
}

// A sleep in a preStop hook delays the end of a pod, but not beyond the grace period.
func TestPreStopSleepDelaysTheEndUpToTheGracePeriod(t *testing.T) {
	for name, test := range map[string]struct {
		sleep, grace, want time.Duration
		node               string
	}{
		"sleeps":              {10 * time.Second, 30 * time.Second, 10 * time.Second, "n1"},
		"longer than allowed": {60 * time.Second, 30 * time.Second, 30 * time.Second, "n1"},
		"on no node":          {10 * time.Second, 30 * time.Second, 0, ""},
		"does not sleep":      {0, 30 * time.Second, 0, "n1"},
	} {
		inv := cluster(t, "Node n1", "Pod a @ "+test.node)
		inv.Pods["a"] = &inventory.Pod{Node: test.node, Grace: test.grace, Sleep: test.sleep}
		if p := preview.New(inv).Predict(requests("Background", "a"), preview.Options{Now: now()}); p.AtLeast != test.want {
			t.Errorf("%s: at least %s, want %s", name, p.AtLeast, test.want)
		}
	}
}
