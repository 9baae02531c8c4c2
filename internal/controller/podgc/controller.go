package podgc

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/internal/controller"
	"github.com/coppice-dev/coppice/internal/controller/pods"
)

const (
	name = "pod-garbage-collector"
	// period is the interval at which all pods are checked if no event triggers that sooner.
	period = 20 * time.Second
	// batchPeriod is the time during which events are collected before all pods are checked.
	batchPeriod = 500 * time.Millisecond
)

type reconciler struct {
	client kubernetes.Interface
	pods   corelisters.PodLister
	nodes  corelisters.NodeLister
	limits Limits
	now    func() time.Time

	missed map[string]time.Time // only the one worker uses it
}

// New returns the controller.
func New(shared *controller.Context, limits Limits) *controller.Controller {
	nodes, all := shared.Informers.Nodes, shared.Informers.Pods
	c := &reconciler{client: shared.Client, pods: all.Lister(), nodes: nodes.Lister(), limits: limits, now: shared.Clock.Now, missed: map[string]time.Time{}}
	// There is a single key, since each decision is about all pods.
	everything := []cache.ObjectName{{Name: "pods"}}
	return &controller.Controller{
		Name: name, Reconcile: c.reconcile, Workers: 1, BatchPeriod: batchPeriod,
		Sources: []controller.Source{
			{Informer: nodes.Informer(), Keys: func(any) []cache.ObjectName { return everything }},
			{Informer: all.Informer(), Keys: func(obj any) []cache.ObjectName {
				if pod, ok := obj.(*corev1.Pod); ok && pod.Spec.NodeName == "" && pods.IsTerminating(pod) {
					return everything
				}
				return nil
			}},
		},
	}
}

func (c *reconciler) reconcile(ctx context.Context, _ cache.ObjectName) (time.Duration, error) {
	seen, err := c.observe()
	if err != nil {
		return 0, err
	}
	removals, wait := Decide(seen, c.limits, c.now())
	var failed []error
	for _, r := range removals {
		if err := c.remove(ctx, r); err != nil {
			failed = append(failed, fmt.Errorf("remove pod %s/%s because %s: %w", r.Pod.Namespace, r.Pod.Name, r.Reason, err))
		}
	}
	if wait == 0 || wait > period {
		wait = period
	}
	return wait, errors.Join(failed...)
}

func (c *reconciler) observe() (Observed, error) {
	all, err := c.pods.List(labels.Everything())
	if err != nil {
		return Observed{}, err
	}
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		return Observed{}, err
	}
	seen := Observed{Pods: all, Nodes: make(map[string]*corev1.Node, len(nodes)), MissedSince: c.missed}
	for _, node := range nodes {
		seen.Nodes[node.Name] = node
	}
	missed := map[string]time.Time{}
	for _, pod := range all {
		name := pod.Spec.NodeName
		if name == "" || seen.Nodes[name] != nil {
			continue
		}
		if since, ok := c.missed[name]; ok {
			missed[name] = since
		} else {
			missed[name] = c.now()
		}
	}
	c.missed, seen.MissedSince = missed, missed
	return seen, nil
}

func (c *reconciler) remove(ctx context.Context, r Removal) error {
	if r.Reason == NodeGone {
		_, err := c.client.CoreV1().Nodes().Get(ctx, r.Pod.Spec.NodeName, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return err // nil for a node that has come back
		}
	}
	version := r.Pod.ResourceVersion
	if !pods.IsFinished(r.Pod) {
		failed, err := c.fail(ctx, r)
		if err != nil {
			return controller.IgnoreNotFound(err)
		}
		version = failed.ResourceVersion
	}
	grace := int64(0)
	return controller.IgnoreNotFound(c.client.CoreV1().Pods(r.Pod.Namespace).Delete(ctx, r.Pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &grace, Preconditions: &metav1.Preconditions{UID: &r.Pod.UID, ResourceVersion: &version},
	}))
}

// fail sets the phase of a pod to Failed, for controllers that wait for its end.
func (c *reconciler) fail(ctx context.Context, r Removal) (*corev1.Pod, error) {
	failed := r.Pod.DeepCopy()
	failed.Status.Phase = corev1.PodFailed
	if r.Reason == NodeGone {
		pods.SetCondition(failed, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(c.now()),
			ObservedGeneration: failed.Generation, Reason: "DeletionByPodGC", Message: "PodGC: node no longer exists",
		})
	}
	return c.client.CoreV1().Pods(failed.Namespace).UpdateStatus(ctx, failed, metav1.UpdateOptions{})
}
