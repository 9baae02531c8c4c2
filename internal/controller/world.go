package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	podrules "github.com/coppice-dev/coppice/internal/pods"
)

// World is what the controllers of one process share. They see one cache of each
// resource that any of them needs.
type World struct {
	Client kubernetes.Interface
	Shared informers.SharedInformerFactory
	Pods   *Dependents[*corev1.Pod]
	Clock  clock.WithTicker
	Log    *slog.Logger

	events record.EventBroadcaster
}

// NewWorld makes the caches, which hold nothing until Run.
func NewWorld(client kubernetes.Interface, clock clock.WithTicker, log *slog.Logger) (*World, error) {
	if client == nil || clock == nil || log == nil {
		return nil, errors.New("workloads: a client, a clock and a logger are required")
	}
	shared := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(withoutHistory))
	pods, err := NewDependents(shared.Core().V1().Pods().Informer(),
		func(ctx context.Context, namespace, name string, kind types.PatchType, patch []byte) (*corev1.Pod, error) {
			return client.CoreV1().Pods(namespace).Patch(ctx, name, kind, patch, metav1.PatchOptions{})
		})
	if err != nil {
		return nil, err
	}
	if err := shared.Core().V1().Pods().Informer().AddIndexers(cache.Indexers{podrules.ByNode: podrules.NodeKey}); err != nil {
		return nil, fmt.Errorf("index pods by node: %w", err)
	}
	return &World{Client: client, Shared: shared, Pods: pods, Clock: clock, Log: log, events: record.NewBroadcaster()}, nil
}

// PodsOn lists the pods in the cache that are bound to a node. They are the cache's own.
func (w *World) PodsOn(node string) []*corev1.Pod {
	objects, err := w.Pods.View().ByIndex(podrules.ByNode, node)
	if err != nil {
		return nil // there is that index
	}
	list := make([]*corev1.Pod, 0, len(objects))
	for _, obj := range objects {
		if pod, ok := obj.(*corev1.Pod); ok {
			list = append(list, pod)
		}
	}
	return list
}

// withoutHistory leaves out who has set which field, which nobody here asks for and is
// as large as the rest.
func withoutHistory(obj any) (any, error) {
	if o, ok := obj.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	return obj, nil
}

// Hand makes and deletes pods for a controller of that name.
func (w *World) Hand(component string) *Hand {
	return &Hand{Client: w.Client, Ledger: NewLedger(w.Pods.View()), Events: w.Events(component)}
}

// Events records events of a component. They are for people: they are written in the
// background, one that cannot be written is lost, and what is said again is counted.
func (w *World) Events(component string) record.EventRecorder {
	return w.events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component})
}

// Run runs the controllers until ctx ends or one of them fails, and returns when all it
// started has ended.
func (w *World) Run(ctx context.Context, controllers ...*Controller) error {
	w.events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: w.Client.CoreV1().Events("")})
	defer w.events.Shutdown()
	group, ctx := errgroup.WithContext(ctx)
	w.Shared.StartWithContext(ctx)
	defer w.Shared.Shutdown()
	for _, c := range controllers {
		group.Go(func() error {
			if err := c.Run(ctx, w.Log, w.Clock); err != nil {
				return fmt.Errorf("controller %s: %w", c.Name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// Themselves is the source of a controller's own objects, which the ledgers know.
func Themselves(informer cache.SharedIndexInformer, ledgers ...*Ledger) Source {
	return Source{Informer: informer, Ledgers: ledgers, Keys: func(obj any) []cache.ObjectName {
		if o, ok := obj.(metav1.Object); ok {
			return []cache.ObjectName{cache.MetaObjectToName(o)}
		}
		return nil
	}}
}
