package disruption

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubectl/pkg/util/podutils"

	"github.com/coppice-dev/coppice/internal/controller"
)

const (
	name    = "disruption-controller"
	workers = 2
	// recheck is the time until a budget whose pods cannot be counted is reconciled again: no
	// watch shows when a kind gets a scale.
	recheck = time.Minute
)

type reconciler struct {
	client  kubernetes.Interface
	budgets policylisters.PodDisruptionBudgetLister
	pods    corelisters.PodLister
	scales  *scales
	events  record.EventRecorder
	now     func() time.Time
}

// Controllers returns the controller of the statuses of PodDisruptionBudgets, and the
// controller of stale DisruptionTarget conditions of pods.
func Controllers(shared *controller.Context) []*controller.Controller {
	c := newReconciler(shared)
	pods := shared.Informers.Pods.Informer()
	sources := []controller.Source{
		controller.For(shared.Informers.PodDisruptionBudgets.Informer()),
		{Informer: pods, Keys: c.ofPod, Ignore: samePod},
	}
	for _, informer := range []cache.SharedIndexInformer{
		shared.Informers.Deployments.Informer(), shared.Informers.ReplicaSets.Informer(),
		shared.Informers.StatefulSets.Informer(), shared.Informers.ReplicationControllers.Informer(),
	} {
		sources = append(sources, controller.Source{Informer: informer, Keys: c.ofWorkload, Ignore: sameScale})
	}
	return []*controller.Controller{
		{Name: name, Reconcile: c.reconcile, Workers: workers, Sources: sources},
		{Name: "stale-disruption-target-controller", Reconcile: c.withdraw, Workers: 1, Sources: []controller.Source{{Informer: pods, Keys: c.targeted}}},
	}
}

func newReconciler(shared *controller.Context) *reconciler {
	return &reconciler{
		client: shared.Client, budgets: shared.Informers.PodDisruptionBudgets.Lister(),
		pods: shared.Informers.Pods.Lister(), scales: newScales(shared.Informers, shared.Client),
		events: shared.Events(name), now: shared.Clock.Now,
	}
}

// selecting returns the budgets that select pods with these labels.
func (c *reconciler) selecting(namespace string, of map[string]string) []cache.ObjectName {
	budgets, err := c.budgets.PodDisruptionBudgets(namespace).List(labels.Everything())
	if err != nil {
		return nil // a cache returns no errors
	}
	var keys []cache.ObjectName
	for _, budget := range budgets {
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err == nil && selector.Matches(labels.Set(of)) {
			keys = append(keys, cache.MetaObjectToName(budget))
		}
	}
	return keys
}

func (c *reconciler) ofPod(obj any) []cache.ObjectName {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil
	}
	return c.selecting(pod.Namespace, pod.Labels)
}

// samePod reports whether a change of a pod affects no budget.
func samePod(before, now any) bool {
	a, aOK := before.(*corev1.Pod)
	b, bOK := now.(*corev1.Pod)
	return aOK && bOK && a.UID == b.UID && maps.Equal(a.Labels, b.Labels) && podutils.IsPodReady(a) == podutils.IsPodReady(b) &&
		(a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil) && equality.Semantic.DeepEqual(a.OwnerReferences, b.OwnerReferences)
}

// ofWorkload returns the budgets that select the pods of an object.
func (c *reconciler) ofWorkload(obj any) []cache.ObjectName {
	workload, _, template := workloadOf(obj)
	if template == nil {
		return nil
	}
	return c.selecting(workload.GetNamespace(), template.Labels)
}

// sameScale reports whether a change of an object that creates pods affects no budget.
func sameScale(before, now any) bool {
	a, ofA, _ := workloadOf(before)
	b, ofB, _ := workloadOf(now)
	return a != nil && b != nil && a.GetUID() == b.GetUID() && equality.Semantic.DeepEqual(ofA, ofB) &&
		equality.Semantic.DeepEqual(a.GetOwnerReferences(), b.GetOwnerReferences())
}

// workloadOf returns the number and the template of the pods that an object creates.
func workloadOf(obj any) (metav1.Object, *int32, *corev1.PodTemplateSpec) {
	switch o := obj.(type) {
	case *appsv1.Deployment:
		return o, o.Spec.Replicas, &o.Spec.Template
	case *appsv1.ReplicaSet:
		return o, o.Spec.Replicas, &o.Spec.Template
	case *appsv1.StatefulSet:
		return o, o.Spec.Replicas, &o.Spec.Template
	case *corev1.ReplicationController:
		return o, o.Spec.Replicas, o.Spec.Template
	}
	return nil, nil, nil
}

func (c *reconciler) reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	budget, err := c.budgets.PodDisruptionBudgets(key.Namespace).Get(key.Name)
	if err != nil {
		return 0, controller.IgnoreNotFound(err)
	}
	seen, unmanaged, err := c.observe(ctx, budget)
	if err != nil {
		return c.fail(ctx, budget, err)
	}
	plan, err := Decide(budget, seen, c.now())
	if err != nil {
		return c.fail(ctx, budget, err)
	}
	if written, err := c.write(ctx, budget, plan.Status); err != nil || !written {
		return plan.RequeueAfter, err
	}
	if len(seen.Pods) == 0 {
		c.events.Event(budget, corev1.EventTypeNormal, "NoPods", "No matching pods found")
	}
	if len(unmanaged) > 0 {
		c.events.Eventf(budget, corev1.EventTypeWarning, "UnmanagedPods", "No controller says how many pods there should be besides %s: they do not count "+
			"as expected. If such pods are to be protected, set .spec.minAvailable to an integer", strings.Join(unmanaged, ", "))
	}
	for _, pod := range plan.NotDeleted {
		c.events.Eventf(pod, corev1.EventTypeWarning, "NotDeleted", "Pod was expected by PDB %s/%s to be deleted but it wasn't", budget.Namespace, budget.Name)
	}
	return plan.RequeueAfter, nil
}

// observe returns the input for the status of a budget, and the names of the selected pods
// without a controller if the budget depends on the controllers.
func (c *reconciler) observe(ctx context.Context, budget *policyv1.PodDisruptionBudget) (seen Observed, unmanaged []string, err error) {
	selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
	if err != nil {
		return seen, nil, fmt.Errorf("read the selector: %w", err)
	}
	if seen.Pods, err = c.pods.Pods(budget.Namespace).List(selector); err != nil {
		return seen, nil, err
	}
	if NeedsScale(budget) {
		seen.Scale, unmanaged, err = c.scales.sum(ctx, seen.Pods)
	}
	slices.Sort(unmanaged)
	return seen, unmanaged, err
}

// fail writes a status that allows no disruption, because the real status cannot be
// computed.
func (c *reconciler) fail(ctx context.Context, budget *policyv1.PodDisruptionBudget, reason error) (time.Duration, error) {
	written, err := c.write(ctx, budget, Failed(budget, reason, c.now()))
	if written {
		c.events.Eventf(budget, corev1.EventTypeWarning, "CalculateExpectedPodCountFailed", "Failed to calculate the number of expected pods: %v", reason)
	}
	if _, ok := errors.AsType[uncountableError](reason); ok {
		return recheck, err
	}
	return 0, errors.Join(reason, err)
}

// write writes the status if it differs from the one in the cache, on the condition that the
// budget equals the cached one.
func (c *reconciler) write(ctx context.Context, budget *policyv1.PodDisruptionBudget, status policyv1.PodDisruptionBudgetStatus) (written bool, err error) {
	if equality.Semantic.DeepEqual(status, budget.Status) {
		return false, nil
	}
	changed := budget.DeepCopy()
	changed.Status = status
	if _, err := c.client.PolicyV1().PodDisruptionBudgets(budget.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{}); err != nil {
		return false, controller.IgnoreNotFound(err)
	}
	return true, nil
}

// targeted returns a pod whose condition DisruptionTarget may become stale.
func (c *reconciler) targeted(obj any) []cache.ObjectName {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil
	}
	if _, may := staleIn(pod, c.now()); !may {
		return nil
	}
	return []cache.ObjectName{cache.MetaObjectToName(pod)}
}

// withdraw sets the condition DisruptionTarget of a pod to False once it is stale.
func (c *reconciler) withdraw(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	pod, err := c.pods.Pods(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	now := c.now()
	left, may := staleIn(pod, now)
	if !may || left > 0 {
		return max(left, 0), nil
	}
	_, err = c.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, withdrawn(pod, now), metav1.UpdateOptions{})
	return 0, controller.IgnoreNotFound(err)
}
