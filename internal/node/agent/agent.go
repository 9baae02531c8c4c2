// Package agent is the node agent: it registers nodes, sends their heartbeats, and runs
// and terminates the pods that are bound to them.
//
//	watch of pods ─┐
//	               ├─▶ queue of UIDs ─▶ worker: pod + Observe ─▶ lifecycle.Decide ─▶ steps ─▶ Runtime.Do
//	Runtime.Run  ──┘                                                └─▶ status ─▶ PATCH pods/status
//
// One agent may run any number of nodes in one process: they share its watch, its workers
// and its queue, and a pod that does not change costs no CPU time. Package lifecycle decides
// what to do about a pod; a Runtime does it.
//
// A pod is removed from the API by a DELETE with a grace period of 0 and a UID precondition:
// there may be another pod of the same name already.
package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/collect/pace"
	"github.com/coppice-dev/coppice/internal/controller"
	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
)

// workers is the number of pods that are reconciled concurrently.
const workers = 8

// byUID is the name of the index of pods by UID.
const byUID = "uid"

// Config configures an agent. Client, Runtime, Nodes and Logger are required.
type Config struct {
	Client  kubernetes.Interface
	Runtime Runtime
	// Nodes are the nodes that the agent runs.
	Nodes []Node
	Clock clock.WithTicker // default: the system clock
	// MovedByHand: a test moves Clock, and so decides when a grace period ends.
	MovedByHand bool
	Logger      *slog.Logger
	// Pods is an informer of all pods, without managed fields, that the caller runs for at least as
	// long as the agent. If nil, the agent runs an informer of its own for the pods on its nodes.
	Pods cache.SharedIndexInformer
	// NodeObjects is such an informer of nodes. If nil, the agent runs an informer of its own for its nodes.
	NodeObjects cache.SharedIndexInformer
	// Lease is the duration of the nodes' Leases. Default: DefaultLease.
	Lease time.Duration
	// Registered is called once, when all nodes have been registered with the API.
	Registered func()
}

// Agent runs the pods of its nodes. Create one with New.
type Agent struct {
	client  kubernetes.Interface
	runtime Runtime
	nodes   map[string]Node
	clock   clock.WithTicker
	log     *slog.Logger
	pods    cache.SharedIndexInformer
	objects cache.SharedIndexInformer   // of nodes
	own     []cache.SharedIndexInformer // the informers that the agent runs itself
	queue   workqueue.TypedRateLimitingInterface[types.UID]

	lease      time.Duration
	registered func()

	mu      sync.Mutex
	records map[types.UID]*record // guarded by mu
	endings map[types.UID]*ending // guarded by mu; of pods that are being deleted
	held    map[string]struct{}   // guarded by mu; the nodes whose pods do not become ready

	admissions admissions
	failures   *pace.Failures
	events     *controller.EventRecorder

	movedByHand bool
}

// New returns an agent. It sends no request.
func New(c Config) (*Agent, error) {
	if c.Client == nil || c.Runtime == nil || c.Logger == nil || len(c.Nodes) == 0 {
		return nil, errors.New("agent: Client, Runtime, Nodes and Logger are required")
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Registered == nil {
		c.Registered = func() {}
	}
	a := &Agent{
		lease: cmp.Or(c.Lease, DefaultLease), registered: c.Registered,
		client: c.Client, runtime: c.Runtime, nodes: map[string]Node{}, clock: c.Clock, log: c.Logger, records: map[types.UID]*record{},
		endings: map[types.UID]*ending{}, held: map[string]struct{}{}, movedByHand: c.MovedByHand, admissions: newAdmissions(), failures: pace.NewFailures(c.Logger, c.Clock), events: controller.NewEventRecorder(c.Client, component),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[types.UID](),
			workqueue.TypedRateLimitingQueueConfig[types.UID]{Clock: c.Clock}),
	}
	for _, n := range c.Nodes {
		a.nodes[n.Name] = n
	}
	if a.pods = c.Pods; a.pods == nil {
		a.pods = newPodInformer(c)
		a.own = append(a.own, a.pods)
	}
	if a.objects = c.NodeObjects; a.objects == nil {
		a.objects = newNodeInformer(c)
		a.own = append(a.own, a.objects)
	}
	for _, informer := range a.own {
		if err := informer.SetTransform(essentials); err != nil {
			return nil, fmt.Errorf("watch pods and nodes: %w", err)
		}
	}
	if err := a.pods.AddIndexers(cache.Indexers{byUID: uidOf}); err != nil {
		return nil, fmt.Errorf("index pods: %w", err)
	}
	return a, nil
}

func newPodInformer(c Config) cache.SharedIndexInformer {
	selector := "spec.nodeName!="
	if len(c.Nodes) == 1 {
		selector = fields.OneTermEqualSelector("spec.nodeName", c.Nodes[0].Name).String()
	}
	narrow := func(o *metav1.ListOptions) { o.FieldSelector = selector }
	return coreinformers.NewFilteredPodInformer(c.Client, metav1.NamespaceAll, 0, cache.Indexers{}, narrow)
}

func newNodeInformer(c Config) cache.SharedIndexInformer {
	narrow := func(o *metav1.ListOptions) {
		if len(c.Nodes) == 1 {
			o.FieldSelector = fields.OneTermEqualSelector("metadata.name", c.Nodes[0].Name).String()
		}
	}
	return coreinformers.NewFilteredNodeInformer(c.Client, 0, cache.Indexers{}, narrow)
}

func uidOf(obj any) ([]string, error) {
	if pod, ok := obj.(*corev1.Pod); ok {
		return []string{string(pod.UID)}, nil
	}
	return nil, nil
}

// essentials is an informer transform that drops the parts of pods and nodes that no agent needs.
func essentials(obj any) (any, error) {
	if o, ok := obj.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	return obj, nil
}

// Run runs the agent until ctx ends, and returns when everything it started has ended. Containers
// keep running: another agent may take over. An agent runs at most once.
func (a *Agent) Run(ctx context.Context) error {
	registration, err := a.pods.AddEventHandler(a.handler())
	if err != nil {
		if ctx.Err() != nil {
			return nil // the owner of the informer has stopped it
		}
		return fmt.Errorf("watch pods: %w", err)
	}
	defer func() { _ = a.pods.RemoveEventHandler(registration) }()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var running sync.WaitGroup
	failed := make(chan error, 1)
	for _, informer := range a.own {
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	if r, ok := a.runtime.(interface {
		Notify(notify func(*corev1.Pod, lifecycle.Event))
	}); ok {
		r.Notify(func(pod *corev1.Pod, e lifecycle.Event) { a.record(pod, []lifecycle.Event{e}) })
	}
	running.Go(func() {
		if err := a.runtime.Run(ctx, a.wake); err != nil && ctx.Err() == nil {
			failed <- fmt.Errorf("runtime %s: %w", a.runtime.Name(), err)
			stop()
		}
	})
	a.events.Start() // before there is anything to record
	running.Go(func() { a.events.Run(ctx) })
	running.Go(func() { a.keepNodes(ctx) })
	// The agent can identify pods that only the runtime has once the informer has synced.
	if cache.WaitForCacheSync(ctx.Done(), a.pods.HasSynced, a.objects.HasSynced) {
		a.adoptStarted()
		for _, uid := range a.runtime.Known() {
			a.queue.Add(uid)
		}
		for range workers {
			running.Go(func() { a.work(ctx) })
		}
	}
	<-ctx.Done()
	a.queue.ShutDown()
	running.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// handler enqueues the pods that change. An informer that lists again, after its watch was interrupted, delivers a pod
// that has taken the name of another one as an update: the other one is gone then.
func (a *Agent) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: a.observe,
		UpdateFunc: func(before, now any) {
			was, wasPod := before.(*corev1.Pod)
			is, isPod := now.(*corev1.Pod)
			if wasPod && isPod && was.UID != is.UID {
				a.observe(was)
			}
			a.observe(now)
		},
		DeleteFunc: func(obj any) {
			if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = last.Obj
			}
			a.observe(obj)
		},
	}
}

// observe enqueues a pod that was changed or removed.
func (a *Agent) observe(obj any) {
	if pod, ok := obj.(*corev1.Pod); ok && a.isOurs(pod) {
		a.queue.Add(pod.UID)
	}
}

func (a *Agent) isOurs(pod *corev1.Pod) bool {
	_, ours := a.nodes[pod.Spec.NodeName]
	return ours
}

func (a *Agent) work(ctx context.Context) {
	for {
		uid, shutdown := a.queue.Get()
		if shutdown {
			return
		}
		if err := a.reconcile(ctx, uid); err != nil && ctx.Err() == nil {
			a.failures.Warn(ctx, "pod not reconciled", string(uid), err, "uid", uid)
			a.queue.AddRateLimited(uid)
		} else {
			a.queue.Forget(uid)
		}
		a.queue.Done(uid)
	}
}
