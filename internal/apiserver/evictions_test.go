package apiserver_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
)

// evictions is a namespace with ready pods and a budget for them. No disruption controller runs there.
type evictions struct {
	collection // of the pods

	t         *testing.T
	typed     kubernetes.Interface
	namespace string
}

func (s *server) evictions(t *testing.T, pods ...string) *evictions {
	t.Helper()
	e := &evictions{t: t, typed: clientOf(t, s), namespace: s.namespace(t)}
	e.collection = s.pods(t, e.namespace)
	for _, name := range pods {
		o := e.named(name)
		o.SetLabels(map[string]string{"app": "web"})
		e.post(o)
		e.setStatus(name, corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}})
	}
	return e
}

func (e *evictions) setStatus(name string, status corev1.PodStatus) {
	e.t.Helper()
	pod, err := e.typed.CoreV1().Pods(e.namespace).Get(e.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	status.QOSClass = pod.Status.QOSClass
	pod.Status = status
	if _, err := e.typed.CoreV1().Pods(e.namespace).UpdateStatus(e.t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		e.t.Fatal(err)
	}
}

// guard creates a budget for the pods, with that status.
func (e *evictions) guard(name string, status policyv1.PodDisruptionBudgetStatus) {
	e.t.Helper()
	budgets := e.typed.PolicyV1().PodDisruptionBudgets(e.namespace)
	budget, err := budgets.Create(e.t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	budget.Status = status
	if _, err := budgets.UpdateStatus(e.t.Context(), budget, metav1.UpdateOptions{}); err != nil {
		e.t.Fatal(err)
	}
}

// allowing is the status of a budget that allows n disruptions.
func allowing(n int32) policyv1.PodDisruptionBudgetStatus {
	return policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, DisruptionsAllowed: n, DesiredHealthy: 1, CurrentHealthy: n + 1, ExpectedPods: n + 1}
}

func (e *evictions) budget(name string) policyv1.PodDisruptionBudgetStatus {
	e.t.Helper()
	budget, err := e.typed.PolicyV1().PodDisruptionBudgets(e.namespace).Get(e.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	return budget.Status
}

// evict requests the eviction of a pod.
func (e *evictions) evict(name string, options map[string]any, query string) (int, error) {
	body := map[string]any{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": map[string]any{"name": name}}
	if options != nil {
		body["deleteOptions"] = options
	}
	code, _, err := e.exchange(http.MethodPost, e.at(name, "eviction")+query, "application/json", body)
	return code, err
}

// stays checks that a pod is not being deleted, and has no condition that announces a deletion.
func (e *evictions) stays(name string) {
	e.t.Helper()
	pod, err := e.typed.CoreV1().Pods(e.namespace).Get(e.t.Context(), name, metav1.GetOptions{})
	if err != nil || pod.DeletionTimestamp != nil || len(pod.Status.Conditions) > 1 {
		e.t.Errorf("%s: %v, deleted at %s, %v", name, err, pod.DeletionTimestamp, pod.Status.Conditions)
	}
}

func TestEvictionIsServed(t *testing.T) {
	s := sharedServer(t)
	list, err := clientOf(t, s).Discovery().ServerResourcesForGroupVersion("v1")
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == "pods/eviction" })
	if i < 0 {
		t.Fatal("not in discovery")
	}
	if r := list.APIResources[i]; r.Group != "policy" || r.Version != "v1" || r.Kind != "Eviction" || !r.Namespaced || !slices.Equal(r.Verbs, metav1.Verbs{"create"}) {
		t.Errorf("%+v", r)
	}
}

func TestEvictionIsLimitedByTheBudget(t *testing.T) {
	s := sharedServer(t)
	e := s.evictions(t, "a", "b", "c")
	e.guard("web", allowing(1))
	if code, err := e.evict("a", map[string]any{"gracePeriodSeconds": 7}, ""); code != http.StatusCreated || err != nil {
		t.Fatalf("%d, %v", code, err)
	}
	endsIn(t, e.get("a"), 7)
	pod, err := e.typed.CoreV1().Pods(e.namespace).Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == "EvictionByEvictionAPI"
	}); i < 0 {
		t.Errorf("conditions %+v", pod.Status.Conditions)
	}
	status := e.budget("web")
	if _, ok := status.DisruptedPods["a"]; !ok || status.DisruptionsAllowed != 0 {
		t.Errorf("the budget is %+v", status)
	}

	code, err := e.evict("b", nil, "")
	answer, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || code != http.StatusTooManyRequests {
		t.Fatalf("%d, %v", code, err)
	}
	causes := answer.ErrStatus.Details.Causes
	if answer.ErrStatus.Message != "Cannot evict pod as it would violate the pod's disruption budget." || len(causes) != 1 || causes[0].Type != policyv1.DisruptionBudgetCause {
		t.Errorf("%+v", answer.ErrStatus)
	}
	e.stays("b")

	// The budget does not apply to a pod that is already being deleted.
	if code, err := e.evict("a", map[string]any{"gracePeriodSeconds": 0}, ""); code != http.StatusCreated || err != nil {
		t.Errorf("again: %d, %v", code, err)
	}
	if left := e.get("a"); left != nil {
		t.Errorf("it still exists: %v", left)
	}
}

func TestEvictionRefused(t *testing.T) {
	s := sharedServer(t)
	e := s.evictions(t, "a")
	for name, test := range map[string]struct {
		options map[string]any
		query   string
		code    int
	}{
		"another uid":         {map[string]any{"preconditions": map[string]any{"uid": "another"}}, "", http.StatusConflict},
		"another version":     {map[string]any{"preconditions": map[string]any{"resourceVersion": "1"}}, "", http.StatusConflict},
		"an unknown policy":   {map[string]any{"propagationPolicy": "Sideways"}, "", http.StatusUnprocessableEntity},
		"a dry run":           {map[string]any{"dryRun": []any{"All"}}, "", http.StatusCreated},
		"a dry run, by query": {nil, "?dryRun=All", http.StatusCreated},
	} {
		if code, err := e.evict("a", test.options, test.query); code != test.code {
			t.Errorf("%s: %d, %v", name, code, err)
		}
		e.stays("a")
	}
	if code, err := e.evict("nobody", nil, ""); code != http.StatusNotFound {
		t.Errorf("a pod that does not exist: %d, %v", code, err)
	}
	behind := allowing(1)
	behind.ObservedGeneration = 0
	e.guard("one", behind)
	code, err := e.evict("a", nil, "")
	if answer, ok := errors.AsType[*apierrors.StatusError](err); !ok || code != http.StatusTooManyRequests || answer.ErrStatus.Details.RetryAfterSeconds != 10 {
		t.Errorf("a budget that is not processed yet: %d, %v", code, err)
	}
	e.guard("two", allowing(1))
	if code, err := e.evict("a", nil, ""); code != http.StatusInternalServerError || err == nil {
		t.Errorf("two budgets: %d, %v", code, err)
	}
	e.stays("a")
}

// Concurrent evictions succeed only as often as the budget allows.
func TestEvictionsAtTheSameTime(t *testing.T) {
	s := sharedServer(t)
	const pods, allowed = 12, 5
	var names []string
	for i := range pods {
		names = append(names, fmt.Sprintf("p%d", i))
	}
	e := s.evictions(t, names...)
	e.guard("web", allowing(allowed))
	var evicted atomic.Int32
	var running sync.WaitGroup
	for _, name := range names {
		running.Go(func() {
			switch code, err := e.evict(name, nil, ""); code {
			case http.StatusCreated:
				evicted.Add(1)
			case http.StatusTooManyRequests:
			default:
				t.Errorf("%s: %d, %v", name, code, err)
			}
		})
	}
	running.Wait()
	if status := e.budget("web"); evicted.Load() != allowed || status.DisruptionsAllowed != 0 || len(status.DisruptedPods) != allowed {
		t.Errorf("%d were evicted; the budget is %+v", evicted.Load(), status)
	}
	list, err := e.typed.CoreV1().Pods(e.namespace).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	going := 0
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp != nil {
			going++
		}
	}
	if going != allowed {
		t.Errorf("%d pods are being deleted", going)
	}
}
