// Package scheduler binds pods to nodes. Package placement decides where; this package has the
// watches and the requests: a Binding conditioned on the pod's uid and, for a pod that fits
// nowhere, its condition PodScheduled and an Event with the reasons.
//
//	watch of nodes ─┐
//	                ├─▶ placement.Cluster ─▶ Place ─▶ pods/binding
//	watch of pods ──┘                          └─▶ condition, Event
//
// Pods, and namespaces for their labels, are watched once there is a node: without nodes there
// is nothing to decide. Pods are placed one at a time, so each placement sees the previous ones;
// bindings are sent by several workers. An unschedulable pod is retried when a node or the labels
// of a namespace change, when a pod on a node is gone, has finished or requests less, and, if it has
// constraints on other pods, when one of these is placed or changes.
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
	"slices"
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

	"github.com/coppice-dev/coppice/internal/collect/pace"
	"github.com/coppice-dev/coppice/internal/controller"
	"github.com/coppice-dev/coppice/internal/controller/pods"
	"github.com/coppice-dev/coppice/internal/node/scheduler/placement"
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
	// Namespaces is such an informer of namespaces.
	Namespaces cache.SharedIndexInformer
}

// Scheduler binds pods to nodes. Create one with New.
type Scheduler struct {
	client kubernetes.Interface
	log    *slog.Logger
	clock  clock.WithTicker
	nodes  cache.SharedIndexInformer
	// pods and namespaces have our event handlers once there is a node.
	pods, namespaces cache.SharedIndexInformer
	// own are the informers that the scheduler runs itself.
	own   []cache.SharedIndexInformer
	queue workqueue.TypedRateLimitingInterface[cache.ObjectName]

	podsNeeded sync.Once
	failures   *pace.Failures
	events     *controller.EventRecorder
	startPods  chan struct{} // closed by podsNeeded
	handlers   atomic.Pointer[[]cache.ResourceEventHandlerRegistration]

	mu      sync.Mutex
	cluster *placement.Cluster   // guarded by mu, like all fields below
	placed  map[types.UID]string // the node that a pod is bound to, or is being bound to
	// unschedulable maps the pods that fit on no node to the reasons.
	unschedulable map[cache.ObjectName]placement.Unplaced
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
		pods:  c.Pods, namespaces: c.Namespaces,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName](),
			workqueue.TypedRateLimitingQueueConfig[cache.ObjectName]{Clock: c.Clock}),
		startPods: make(chan struct{}), failures: pace.NewFailures(c.Logger, c.Clock), events: controller.NewEventRecorder(c.Client, corev1.DefaultSchedulerName),
		cluster: placement.NewCluster(), placed: map[types.UID]string{}, unschedulable: map[cache.ObjectName]placement.Unplaced{},
	}
	if err := s.nodes.SetTransform(essentials); err != nil {
		return nil, fmt.Errorf("watch nodes: %w", err)
	}
	return s, s.prepare()
}

// prepare creates the informers that the configuration lacks, and adds the index of pods.
func (s *Scheduler) prepare() error {
	if s.pods == nil {
		s.pods = coreinformers.NewPodInformer(s.client, metav1.NamespaceAll, 0, cache.Indexers{})
		s.own = append(s.own, s.pods)
	}
	if s.namespaces == nil {
		s.namespaces = coreinformers.NewNamespaceInformer(s.client, 0, cache.Indexers{})
		s.own = append(s.own, s.namespaces)
	}
	for _, informer := range s.own {
		if err := informer.SetTransform(essentials); err != nil {
			return fmt.Errorf("watch pods and namespaces: %w", err)
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
	if _, err := s.nodes.AddEventHandler(handler(s.observeNode, s.forgetNode)); err != nil {
		return fmt.Errorf("watch nodes: %w", err)
	}
	var running sync.WaitGroup
	s.events.Start() // before there is anything to record
	running.Go(func() { s.events.Run(ctx) })
	running.Go(func() { s.nodes.RunWithContext(ctx) })
	running.Go(func() { s.watchPods(ctx) })
	// No pod is placed before all pods on nodes are known.
	podsKnown := func() bool {
		handlers := s.handlers.Load()
		return handlers != nil && !slices.ContainsFunc(*handlers, func(h cache.ResourceEventHandlerRegistration) bool { return !h.HasSynced() })
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

// watchPods watches pods and namespaces once there is a node.
func (s *Scheduler) watchPods(ctx context.Context) {
	select {
	case <-s.startPods:
	case <-ctx.Done():
		return
	}
	var handlers []cache.ResourceEventHandlerRegistration
	for _, watched := range []struct {
		informer        cache.SharedIndexInformer
		observe, forget func(any)
	}{{s.namespaces, s.observeNamespace, s.forgetNamespace}, {s.pods, s.observePod, s.forgetPod}} {
		registration, err := watched.informer.AddEventHandler(handler(watched.observe, watched.forget))
		if err != nil {
			return // the informer has been stopped already
		}
		defer func() { _ = watched.informer.RemoveEventHandler(registration) }()
		handlers = append(handlers, registration)
	}
	s.handlers.Store(&handlers)
	var running sync.WaitGroup
	for _, informer := range s.own {
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	running.Wait()
	<-ctx.Done()
}

func (s *Scheduler) work(ctx context.Context) {
	for {
		name, shutdown := s.queue.Get()
		if shutdown {
			return
		}
		if err := s.reconcile(ctx, name); err != nil && ctx.Err() == nil {
			s.failures.Warn(ctx, "pod not scheduled", name.String(), err, "pod", name.String())
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
		o.ManagedFields, o.Annotations = nil, nil
		o.Spec.Volumes = nil
		o.Status = corev1.PodStatus{Phase: o.Status.Phase, Conditions: scheduledCondition(o)}
		for _, containers := range [][]corev1.Container{o.Spec.InitContainers, o.Spec.Containers} {
			for i, c := range containers {
				containers[i] = corev1.Container{Name: c.Name, Ports: c.Ports, Resources: c.Resources, RestartPolicy: c.RestartPolicy}
			}
		}
	case *corev1.Node:
		o.ManagedFields, o.Status.Images = nil, nil
	case *corev1.Namespace:
		o.ManagedFields, o.Annotations = nil, nil
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
