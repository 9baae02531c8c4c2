package nodelifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	coordinationinformers "k8s.io/client-go/informers/coordination/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubectl/pkg/util/podutils"

	"github.com/coppice-dev/coppice/internal/controller"
	"github.com/coppice-dev/coppice/internal/controller/pods"
)

const (
	name    = "node-controller"
	workers = 4

	// DefaultGrace is how long a node may be without a heartbeat: five heartbeat intervals.
	DefaultGrace = 50 * time.Second
)

type reconciler struct {
	client kubernetes.Interface
	nodes  corelisters.NodeLister
	leases cache.Indexer
	shared *controller.Context
	events record.EventRecorder
	grace  time.Duration

	mu         sync.Mutex
	heartbeats map[string]heartbeat // guarded by mu; by the name of the node
	outage     outage               // guarded by mu
	exposures  exposures            // guarded by mu
}

// exposures has the exposures of the pods on each node that have one, by the name of the node and the UID of the pod. Only
// the worker that reconciles a node changes its entry.
type exposures map[string]map[types.UID]exposure

// New returns the controller of nodes, which also evicts pods because of taints. A node without a heartbeat for the grace period is unreachable.
func New(shared *controller.Context, grace time.Duration) *controller.Controller {
	nodes := shared.Informers.Nodes
	leases := coordinationinformers.NewLeaseInformer(shared.Client, corev1.NamespaceNodeLease, 0, cache.Indexers{})
	c := &reconciler{
		client: shared.Client, nodes: nodes.Lister(), leases: leases.GetIndexer(), shared: shared, events: shared.Events(name), grace: grace,
		heartbeats: map[string]heartbeat{}, exposures: exposures{},
	}
	return &controller.Controller{
		Name: name, Reconcile: c.reconcile, Workers: workers, Informers: []cache.SharedIndexInformer{leases},
		Sources: []controller.Source{
			controller.For(nodes.Informer()),
			{Informer: nodes.Informer(), Keys: c.changeOutage, Ignore: sameReadiness},
			{Informer: leases, Keys: func(obj any) []cache.ObjectName {
				if lease, ok := obj.(*coordinationv1.Lease); ok {
					return []cache.ObjectName{{Name: lease.Name}}
				}
				return nil
			}},
			{Informer: shared.Informers.Pods.Informer(), Keys: c.tainted},
		},
	}
}

// tainted returns the node that a pod is bound to, if the pod may have to be evicted.
func (c *reconciler) tainted(obj any) []cache.ObjectName {
	pod, ok := obj.(*corev1.Pod)
	if !ok || pod.Spec.NodeName == "" || pods.IsTerminating(pod) {
		return nil
	}
	if node, err := c.nodes.Get(pod.Spec.NodeName); err != nil || len(node.Spec.Taints) == 0 {
		return nil
	}
	return []cache.ObjectName{{Name: pod.Spec.NodeName}}
}

// changeOutage returns all nodes when an outage begins or ends.
func (c *reconciler) changeOutage(any) []cache.ObjectName {
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		return nil // a cache returns no errors
	}
	now := c.shared.Clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.outage
	if c.outage = before.observe(nodes, now); c.outage == before {
		return nil
	}
	if before.total {
		for name, h := range c.heartbeats {
			c.heartbeats[name] = heartbeat{h.renewed, now}
		}
	}
	keys := make([]cache.ObjectName, len(nodes))
	for i, node := range nodes {
		keys[i] = cache.ObjectName{Name: node.Name}
	}
	return keys
}

func sameReadiness(before, now any) bool {
	a, ok := before.(*corev1.Node)
	b, both := now.(*corev1.Node)
	return ok && both && readiness(a) == readiness(b) && equality.Semantic.DeepEqual(a.Labels, b.Labels)
}

func (c *reconciler) reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	node, err := c.nodes.Get(key.Name)
	if apierrors.IsNotFound(err) {
		c.mu.Lock()
		delete(c.heartbeats, key.Name)
		delete(c.exposures, key.Name)
		c.mu.Unlock()
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	now := c.shared.Clock.Now()
	// Before the taints change: one that goes and comes back at once is tolerated anew.
	present := c.expose(node, now)
	health := c.healthOf(node, now)
	switch changed := node.DeepCopy(); {
	case !equality.Semantic.DeepEqual(health.Conditions, node.Status.Conditions):
		changed.Status.Conditions = health.Conditions
		c.events.Eventf(node, corev1.EventTypeNormal, "NodeNotReady", "Node %s status is now: NodeNotReady", node.Name)
		_, err = c.client.CoreV1().Nodes().UpdateStatus(ctx, changed, metav1.UpdateOptions{})
		return health.RequeueAfter, err // its event enqueues the node again, for the taints
	case !equality.Semantic.DeepEqual(health.Taints, node.Spec.Taints):
		changed.Spec.Taints = health.Taints
		_, err = c.client.CoreV1().Nodes().Update(ctx, changed, metav1.UpdateOptions{})
		return health.RequeueAfter, err
	}
	requeueAfter, err := c.evictPods(ctx, node, present, now)
	if requeueAfter == 0 || health.RequeueAfter > 0 && health.RequeueAfter < requeueAfter {
		requeueAfter = health.RequeueAfter
	}
	return requeueAfter, err
}

func (c *reconciler) healthOf(node *corev1.Node, now time.Time) health {
	var lease *coordinationv1.Lease
	if known, exists, err := c.leases.GetByKey(corev1.NamespaceNodeLease + "/" + node.Name); err == nil && exists {
		lease, _ = known.(*coordinationv1.Lease)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.heartbeats[node.Name].observe(lease, now)
	c.heartbeats[node.Name] = h
	return c.outage.spare(healthOf(node, h.at, c.grace, now), c.grace, now)
}

// expose returns the pods of a node that is not ready or has taints, and remembers their exposures to these.
func (c *reconciler) expose(node *corev1.Node, now time.Time) []exposed {
	c.mu.Lock()
	before := c.exposures[node.Name]
	delete(c.exposures, node.Name)
	c.mu.Unlock()
	if readiness(node) == corev1.ConditionTrue && len(node.Spec.Taints) == 0 {
		return nil
	}
	var present []exposed
	next := map[types.UID]exposure{}
	for _, pod := range c.shared.PodsOn(node.Name) {
		since := before[pod.UID].observe(pod, node.Spec.Taints, now)
		present = append(present, exposed{pod, since})
		if since != nil {
			next[pod.UID] = since
		}
	}
	if len(next) > 0 {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.exposures[node.Name] = next
	}
	return present
}

// evictPods marks the pods of a node that is not ready as not ready, and deletes the pods that
// do not tolerate its taints. It returns the time until the next eviction.
func (c *reconciler) evictPods(ctx context.Context, node *corev1.Node, present []exposed, now time.Time) (requeueAfter time.Duration, err error) {
	ready := readiness(node)
	var failed []error
	for _, at := range present {
		pod := at.Pod
		until, leaves := at.evictionTime(node.Spec.Taints, c.grace)
		switch left := until.Sub(now); {
		case pods.IsTerminating(pod):
		case leaves && left <= 0:
			failed = append(failed, controller.IgnoreNotFound(c.evict(ctx, pod, now)))
			continue
		case leaves && (requeueAfter == 0 || left < requeueAfter):
			requeueAfter = left
		}
		if (ready == corev1.ConditionFalse || ready == corev1.ConditionUnknown) && podutils.IsPodReady(pod) {
			failed = append(failed, controller.IgnoreNotFound(c.markNotReady(ctx, pod, now)))
		}
	}
	return requeueAfter, errors.Join(failed...)
}

func (c *reconciler) markNotReady(ctx context.Context, pod *corev1.Pod, now time.Time) error {
	changed := pod.DeepCopy()
	pods.SetCondition(changed, corev1.PodCondition{
		Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(now), Reason: "NodeNotReady", Message: "Node is not ready",
	})
	if _, err := c.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("mark pod %s/%s as not ready: %w", pod.Namespace, pod.Name, err)
	}
	c.events.Event(pod, corev1.EventTypeWarning, "NodeNotReady", "Node is not ready")
	return nil
}

// evict deletes a pod with the pod's own grace period: if its node is alive, it shuts the pod
// down.
func (c *reconciler) evict(ctx context.Context, pod *corev1.Pod, now time.Time) error {
	marked := pod.DeepCopy()
	pods.SetCondition(marked, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now),
		ObservedGeneration: marked.Generation, Reason: "DeletionByTaintManager", Message: "Taint manager: deleting due to NoExecute taint",
	})
	marked, err := c.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, marked, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("mark pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	c.events.Eventf(pod, corev1.EventTypeNormal, "TaintManagerEviction", "Marking for deletion Pod %s/%s", pod.Namespace, pod.Name)
	err = c.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &marked.UID, ResourceVersion: &marked.ResourceVersion},
	})
	if err != nil {
		return fmt.Errorf("evict pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}
