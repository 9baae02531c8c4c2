// Package agent is the node agent: it registers nodes, sends their heartbeats, and sees to
// it that the pods that are bound to them run, and end.
//
//	watch of pods ─┐
//	               ├─▶ queue of UIDs ─▶ worker: pod + Observe ─▶ lifecycle.Decide ─▶ steps ─▶ Runtime.Do
//	Runtime.Run  ──┘                                                └─▶ status ─▶ PATCH pods/status
//
// One agent may stand for any number of nodes of one process: they share its watch, its
// workers and its queue, and a pod that is at rest costs no time. What an agent does about
// a pod is decided in package lifecycle; what runs is up to a runtime.Runtime.
//
// A pod is removed from the API by a DELETE with grace 0 on condition of its uid: there may
// be another of that name already.
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

	"github.com/coppice-dev/coppice/internal/agent/containerruntime"
)

// workers is how many pods are worked on at a time.
const workers = 8

// byUID is the index of pods by uid.
const byUID = "uid"

// Config is what an agent needs. Client, Runtime, Nodes and Logger are required.
type Config struct {
	Client  kubernetes.Interface
	Runtime containerruntime.Runtime
	// Nodes are the nodes that the agent stands for.
	Nodes  []Node
	Clock  clock.WithTicker // default: the system's
	Logger *slog.Logger
	// Pods is an informer of all pods, without managed fields, that somebody else runs for as
	// long as the agent; nil: the agent has one of its own, of the pods on its nodes.
	Pods cache.SharedIndexInformer
	// Lease is how long a heartbeat counts; DefaultLease if 0.
	Lease time.Duration
	// Registered is called once, when all nodes are in the API.
	Registered func()
}

// Agent stands for nodes. Make one with New.
type Agent struct {
	client  kubernetes.Interface
	runtime containerruntime.Runtime
	nodes   map[string]Node
	clock   clock.WithTicker
	log     *slog.Logger
	pods    cache.SharedIndexInformer
	ownPods bool // the agent runs that informer
	queue   workqueue.TypedRateLimitingInterface[types.UID]

	lease      time.Duration
	registered func()

	mu      sync.Mutex
	records map[types.UID]*record // guarded by mu
}

// New makes an agent. It sends no request.
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
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[types.UID](),
			workqueue.TypedRateLimitingQueueConfig[types.UID]{Clock: c.Clock}),
	}
	for _, n := range c.Nodes {
		a.nodes[n.Name] = n
	}
	if a.pods = c.Pods; a.pods == nil {
		a.ownPods, a.pods = true, newPodInformer(c)
		if err := a.pods.SetTransform(essentials); err != nil {
			return nil, fmt.Errorf("watch pods: %w", err)
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

func uidOf(obj any) ([]string, error) {
	if pod, ok := obj.(*corev1.Pod); ok {
		return []string{string(pod.UID)}, nil
	}
	return nil, nil
}

// essentials leaves out what no agent needs of a pod.
func essentials(obj any) (any, error) {
	if pod, ok := obj.(*corev1.Pod); ok {
		pod.ManagedFields = nil
	}
	return obj, nil
}

// Run works until ctx ends, and returns when all that it started has ended. Containers
// go on: another agent may take over. An agent runs once.
func (a *Agent) Run(ctx context.Context) error {
	registration, err := a.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    a.observe,
		UpdateFunc: func(_, now any) { a.observe(now) },
		DeleteFunc: func(obj any) {
			if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = last.Obj
			}
			a.observe(obj)
		},
	})
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
	if a.ownPods {
		running.Go(func() { a.pods.RunWithContext(ctx) })
	}
	running.Go(func() {
		if err := a.runtime.Run(ctx, a.queue.Add); err != nil && ctx.Err() == nil {
			failed <- fmt.Errorf("runtime %s: %w", a.runtime.Name(), err)
			stop()
		}
	})
	running.Go(func() { a.keepNodes(ctx) })
	// What the runtime has and the API has not is known when the API has been listed.
	if cache.WaitForCacheSync(ctx.Done(), a.pods.HasSynced) {
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

// observe enqueues a pod that has changed or is gone.
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
			a.log.WarnContext(ctx, "pod not taken care of", "uid", uid, "error", err)
			a.queue.AddRateLimited(uid)
		} else {
			a.queue.Forget(uid)
		}
		a.queue.Done(uid)
	}
}
