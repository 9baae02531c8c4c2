package nodelifecycle

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
	"github.com/coppice-dev/coppice/internal/rules/builtin"
)

const (
	podGCName = "pod-garbage-collector"
	// podGCBatchPeriod is the time during which events are collected before all pods are checked.
	podGCBatchPeriod = 500 * time.Millisecond
)

type podCollector struct {
	client kubernetes.Interface
	pods   corelisters.PodLister
	nodes  corelisters.NodeLister
	limits PodLimits
	now    func() time.Time

	missed map[string]time.Time // only the one worker uses it
}

// NewPodGC returns the pod garbage collector: it removes pods that no kubelet will remove. These are pods of nodes
// that are gone, terminating pods that were never bound to a node, and the oldest finished pods when there are too
// many. It does not look at owner references; the garbage collector handles these.
//
// A pod of a node that does not exist is removed only after the node has been missing for a while and a live read
// has confirmed it: a node that is created again may have kept its pods.
func NewPodGC(shared *controller.Context, limits PodLimits) *controller.Controller {
	nodes, all := shared.Informers.Nodes, shared.Informers.Pods
	c := &podCollector{client: shared.Client, pods: all.Lister(), nodes: nodes.Lister(), limits: limits, now: shared.Clock.Now, missed: map[string]time.Time{}}
	// There is a single key, since each decision is about all pods.
	everything := []cache.ObjectName{{Name: "pods"}}
	first := make(chan controller.Request, 1)
	first <- controller.Request{Key: everything[0]} // no event need come: without any node, the pods of missing ones go, too
	return &controller.Controller{
		Name: podGCName, Reconcile: c.reconcile, Workers: 1, BatchPeriod: podGCBatchPeriod, Requests: first,
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

func (c *podCollector) reconcile(ctx context.Context, _ cache.ObjectName) (time.Duration, error) {
	seen, err := c.observe()
	if err != nil {
		return 0, err
	}
	removals, wait := decideRemovals(seen, c.limits, c.now())
	var failed []error
	for _, r := range removals {
		if err := c.remove(ctx, r); err != nil {
			failed = append(failed, fmt.Errorf("remove pod %s/%s because %s: %w", r.Pod.Namespace, r.Pod.Name, r.Reason, err))
		}
	}
	if wait == 0 || wait > builtin.PodGarbagePeriod {
		wait = builtin.PodGarbagePeriod
	}
	return wait, errors.Join(failed...)
}

func (c *podCollector) observe() (podsAndNodes, error) {
	all, err := c.pods.List(labels.Everything())
	if err != nil {
		return podsAndNodes{}, err
	}
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		return podsAndNodes{}, err
	}
	seen := podsAndNodes{Pods: all, Nodes: make(map[string]*corev1.Node, len(nodes)), MissedSince: c.missed}
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

func (c *podCollector) remove(ctx context.Context, r removal) error {
	if r.Reason == builtin.NodeGone {
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
func (c *podCollector) fail(ctx context.Context, r removal) (*corev1.Pod, error) {
	failed := r.Pod.DeepCopy()
	failed.Status.Phase = corev1.PodFailed
	if r.Reason == builtin.NodeGone {
		pods.SetCondition(failed, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(c.now()),
			ObservedGeneration: failed.Generation, Reason: "DeletionByPodGC", Message: "PodGC: node no longer exists",
		})
	}
	return c.client.CoreV1().Pods(failed.Namespace).UpdateStatus(ctx, failed, metav1.UpdateOptions{})
}
