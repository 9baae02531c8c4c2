// Package scheduler binds pods to nodes. Package placement decides where; this package has the
// watches and the requests: a Binding conditioned on the pod's uid and, for a pod that fits
// nowhere, its condition PodScheduled and an Event with the reasons.
//
//	watch of nodes ─┐
//	                ├─▶ nodes with what is on them ─▶ placement.Place ─▶ pods/binding
//	watch of pods ──┘                                        └─▶ condition, Event
//
// Pods are watched once there is a node: without nodes there is nothing to decide. Pods are
// placed one at a time, so each placement sees the previous ones; bindings are sent by several
// workers. An unschedulable pod is retried when a node changes, or when a pod on a node is
// gone or has finished.
//
// The loop is not that of package controller: there an event is only a key, whereas here
// it changes the nodes that placement reads, and an addition and a deletion change them
// differently.
package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/pods"
	"github.com/coppice-dev/coppice/internal/scheduler/placement"
)

// workers is the number of bindings sent concurrently.
const workers = 4

// Config configures a Scheduler. Client and Logger are required.
type Config struct {
	Client kubernetes.Interface
	Logger *slog.Logger
	Clock  clock.WithTicker // nil: the system's
	// Pods is a shared informer of all pods, which the caller runs for as long as the scheduler
	// runs. If nil, the scheduler runs its own once there is a node.
	Pods cache.SharedIndexInformer
}

// Scheduler binds pods to nodes. Create one with New.
type Scheduler struct {
	client kubernetes.Interface
	log    *slog.Logger
	clock  clock.WithTicker
	nodes  cache.SharedIndexInformer
	pods   cache.SharedIndexInformer // has our event handler once there is a node
	// ownPods means that the scheduler runs the informer of pods itself.
	ownPods bool
	queue   workqueue.TypedRateLimitingInterface[cache.ObjectName]

	podsNeeded sync.Once
	startPods  chan struct{} // closed by podsNeeded
	podHandler atomic.Pointer[cache.ResourceEventHandlerRegistration]

	mu     sync.Mutex
	known  map[string]*placement.Node // guarded by mu, and so is all below
	order  []*placement.Node          // the known nodes, in the order of Place
	first  int                        // where Place starts
	placed map[types.UID]string       // the node that a pod is bound to, or is being bound to
	// unschedulable are the pods that fit nowhere.
	unschedulable map[cache.ObjectName]struct{}
}

// New returns a scheduler. It sends no requests.
func New(c Config) (*Scheduler, error) {
	if c.Client == nil || c.Logger == nil {
		return nil, errors.New("scheduler: Client and Logger are required")
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	s := &Scheduler{
		client: c.Client, log: c.Logger, clock: c.Clock,
		nodes: coreinformers.NewNodeInformer(c.Client, 0, cache.Indexers{}),
		pods:  c.Pods,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName](),
			workqueue.TypedRateLimitingQueueConfig[cache.ObjectName]{Clock: c.Clock}),
		startPods: make(chan struct{}),
		known:     map[string]*placement.Node{}, placed: map[types.UID]string{}, unschedulable: map[cache.ObjectName]struct{}{},
	}
	if err := s.nodes.SetTransform(essentials); err != nil {
		return nil, fmt.Errorf("watch nodes: %w", err)
	}
	return s, s.preparePods()
}

// preparePods creates the informer of pods unless a shared one was given, and adds the index.
func (s *Scheduler) preparePods() error {
	if s.pods == nil {
		s.ownPods, s.pods = true, coreinformers.NewPodInformer(s.client, metav1.NamespaceAll, 0, cache.Indexers{})
		if err := s.pods.SetTransform(essentials); err != nil {
			return fmt.Errorf("watch pods: %w", err)
		}
	}
	if _, ok := s.pods.GetIndexer().GetIndexers()[pods.ByNode]; ok {
		return nil
	}
	if err := s.pods.AddIndexers(cache.Indexers{pods.ByNode: pods.NodeKey}); err != nil {
		return fmt.Errorf("index pods by node: %w", err)
	}
	return nil
}

// Run runs the scheduler until ctx ends, and returns when everything it started has ended. A
// scheduler can run only once.
func (s *Scheduler) Run(ctx context.Context) error {
	_, err := s.nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: s.observeNode, UpdateFunc: func(_, now any) { s.observeNode(now) }, DeleteFunc: s.forgetNode,
	})
	if err != nil {
		return fmt.Errorf("watch nodes: %w", err)
	}
	var running sync.WaitGroup
	running.Go(func() { s.nodes.RunWithContext(ctx) })
	running.Go(func() { s.watchPods(ctx) })
	// No pod is placed before all pods that are on nodes are known.
	podsKnown := func() bool {
		handler := s.podHandler.Load()
		return handler != nil && (*handler).HasSynced()
	}
	if cache.WaitForCacheSync(ctx.Done(), s.nodes.HasSynced, podsKnown) {
		for range workers {
			running.Go(func() { s.work(ctx) })
		}
	}
	<-ctx.Done()
	s.queue.ShutDown()
	running.Wait()
	return nil
}

// watchPods watches pods once there is a node.
func (s *Scheduler) watchPods(ctx context.Context) {
	select {
	case <-s.startPods:
	case <-ctx.Done():
		return
	}
	handler, err := s.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: s.observePod, UpdateFunc: func(_, now any) { s.observePod(now) }, DeleteFunc: s.forgetPod,
	})
	if err != nil {
		return // the informer has been stopped already
	}
	defer func() { _ = s.pods.RemoveEventHandler(handler) }()
	s.podHandler.Store(&handler)
	if s.ownPods {
		s.pods.RunWithContext(ctx)
	}
	<-ctx.Done()
}

func (s *Scheduler) work(ctx context.Context) {
	for {
		name, shutdown := s.queue.Get()
		if shutdown {
			return
		}
		if err := s.reconcile(ctx, name); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "pod not scheduled", "pod", name.String(), "error", err)
			s.queue.AddRateLimited(name)
		} else {
			s.queue.Forget(name)
		}
		s.queue.Done(name)
	}
}

// essentials drops the fields that placement does not need.
func essentials(obj any) (any, error) {
	switch o := obj.(type) {
	case *corev1.Pod:
		o.ManagedFields, o.Annotations, o.Labels = nil, nil, nil
		o.Spec.Volumes = nil
		o.Status = corev1.PodStatus{Phase: o.Status.Phase, Conditions: scheduledCondition(o)}
		for _, containers := range [][]corev1.Container{o.Spec.InitContainers, o.Spec.Containers} {
			for i, c := range containers {
				containers[i] = corev1.Container{Name: c.Name, Ports: c.Ports, Resources: c.Resources, RestartPolicy: c.RestartPolicy}
			}
		}
	case *corev1.Node:
		o.ManagedFields, o.Status.Images = nil, nil
	}
	return obj, nil
}

// scheduledCondition returns the only condition of a pod that the scheduler needs.
func scheduledCondition(pod *corev1.Pod) []corev1.PodCondition {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			return []corev1.PodCondition{c}
		}
	}
	return nil
}
