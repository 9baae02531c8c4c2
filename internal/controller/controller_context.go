package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	podrules "github.com/coppice-dev/coppice/internal/controller/pods"
)

// Context contains what the controllers of one process share: a single cache of each resource
// that any of them needs.
type Context struct {
	Client    kubernetes.Interface
	Informers *Informers
	Pods      *RefManager[*corev1.Pod]
	Clock     clock.WithTicker
	Log       *slog.Logger

	events  record.EventBroadcaster
	limits  eventLimits                   // of all controllers together
	running atomic.Pointer[[]*Controller] // nil before Run
}

// NewContext creates the caches, which are empty until Run.
func NewContext(client kubernetes.Interface, clock clock.WithTicker, log *slog.Logger) (*Context, error) {
	if client == nil || clock == nil || log == nil {
		return nil, errors.New("controller: a client, a clock and a logger are required")
	}
	c := NewPodlessContext(client, clock, log)
	shared := c.Informers
	pods, err := NewRefManager(shared.Pods.Informer(),
		func(ctx context.Context, namespace, name string, kind types.PatchType, patch []byte) (*corev1.Pod, error) {
			return client.CoreV1().Pods(namespace).Patch(ctx, name, kind, patch, metav1.PatchOptions{})
		})
	if err != nil {
		return nil, err
	}
	if err := shared.Pods.Informer().AddIndexers(cache.Indexers{podrules.ByNode: podrules.NodeKey}); err != nil {
		return nil, fmt.Errorf("index pods by node: %w", err)
	}
	if err := shared.Nodes.Informer().AddIndexers(cache.Indexers{anyNode: func(any) ([]string, error) { return []string{""}, nil }}); err != nil {
		return nil, fmt.Errorf("index nodes: %w", err)
	}
	c.Pods = pods
	return c, nil
}

// anyNode is the name of an index of nodes with one value.
const anyNode = "any"

// HasNodes reports whether the cache has a node.
func (c *Context) HasNodes() bool {
	return len(c.Informers.Nodes.Informer().GetIndexer().ListIndexFuncValues(anyNode)) > 0
}

// NewPodlessContext is like NewContext, for controllers that do not read pods: Pods is nil.
func NewPodlessContext(client kubernetes.Interface, clock clock.WithTicker, log *slog.Logger) *Context {
	return &Context{Client: client, Informers: newInformers(client, withoutManagedFields), Clock: clock, Log: log, events: record.NewBroadcaster(), limits: newEventLimits()}
}

// PodsOn lists the pods in the cache that are bound to a node. The pods belong to the cache.
func (c *Context) PodsOn(node string) []*corev1.Pod {
	objects, err := c.Pods.Indexer().ByIndex(podrules.ByNode, node)
	if err != nil {
		return nil // the only error is a missing index
	}
	list := make([]*corev1.Pod, 0, len(objects))
	for _, obj := range objects {
		if pod, ok := obj.(*corev1.Pod); ok {
			list = append(list, pod)
		}
	}
	return list
}

// withoutManagedFields drops managedFields: no controller reads them, and they are as large as
// the rest.
func withoutManagedFields(obj any) (any, error) {
	if o, ok := obj.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	return obj, nil
}

// PodControl returns a PodControl for the controller of that name.
func (c *Context) PodControl(component string) *PodControl {
	return &PodControl{Client: c.Client, Expectations: NewExpectations(c.Pods.Indexer()), Events: c.Events(component)}
}

// Events returns a recorder for the events of a component. They are meant for people: they are
// written in the background, an event that cannot be written, or is beyond the limit of all controllers, is lost, and
// repetitions are counted.
func (c *Context) Events(component string) record.EventRecorder {
	return limitedRecorder{c.events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component}), c.limits}
}

// Run runs the controllers until ctx ends or one of them fails, and returns when all its
// goroutines have ended.
func (c *Context) Run(ctx context.Context, controllers ...*Controller) error {
	c.events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: c.Client.CoreV1().Events("")})
	defer c.events.Shutdown()
	group, ctx := errgroup.WithContext(ctx)
	c.Informers.start(ctx)
	defer c.Informers.shutdown()
	c.running.Store(&controllers)
	for _, controller := range controllers {
		group.Go(func() error {
			if err := controller.Run(ctx, c.Log, c.Clock); err != nil {
				return fmt.Errorf("controller %s: %w", controller.Name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// Busy returns the controllers that are reconciling an object, have one that they could reconcile at once, or hold a
// status back, by name, with the numbers of these objects. Other keys that wait for a time do not count. A controller
// that is not busy, while no cache is behind a state of the server, has finished with all earlier states.
func (c *Context) Busy() (busy []string) {
	running := c.running.Load()
	if running == nil {
		return nil
	}
	for _, controller := range *running {
		if doing := controller.busy(); doing != "" {
			busy = append(busy, controller.Name+" ("+doing+")")
		}
	}
	return busy
}
