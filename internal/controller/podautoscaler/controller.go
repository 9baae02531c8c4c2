package podautoscaler

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery/cached/memory"
	autoscalinginformers "k8s.io/client-go/informers/autoscaling/v2"
	"k8s.io/client-go/kubernetes"
	autoscalinglisters "k8s.io/client-go/listers/autoscaling/v2"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/coppice-dev/coppice/internal/controller"
)

const (
	name    = "horizontal-pod-autoscaler"
	workers = 2 // each may wait for a metrics server
	// syncPeriod is how often metrics are read.
	syncPeriod = 15 * time.Second
	// untilSynced is the interval of syncs while the cache of pods is not synced.
	untilSynced = 100 * time.Millisecond
)

type reconciler struct {
	client      kubernetes.Interface
	autoscalers autoscalinglisters.HorizontalPodAutoscalerLister
	pods        corelisters.PodLister
	podsSynced  cache.InformerSynced // there is no handler on the shared informer: no event matters
	scales      *scales
	metrics     *metrics
	events      record.EventRecorder
	now         func() time.Time

	mu    sync.Mutex
	known map[cache.ObjectName]remembered // guarded by mu
}

// remembered is the state of an autoscaler from its last sync.
type remembered struct {
	uid      types.UID
	selector labels.Selector // of its target's pods; nil if that cannot be used
	memory   Memory
}

// New returns the controller. It has a user of its own with a right that other controllers do not
// have: to change the scale of any object.
func New(shared *controller.Context, config *rest.Config) (*controller.Controller, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create the client of the pod autoscaler: %w", err)
	}
	// Custom resources are not served as protobuf.
	config = rest.CopyConfig(config)
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	// Discovery is read when the first autoscaler needs it.
	known := memory.NewMemCacheClient(client.Discovery())
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(known)
	c := &reconciler{
		client: client, pods: shared.Informers.Pods.Lister(), events: shared.Events(name), now: shared.Clock.Now,
		podsSynced: shared.Informers.Pods.Informer().HasSynced, known: map[cache.ObjectName]remembered{},
	}
	if c.scales, err = newScales(config, known, mapper); err != nil {
		return nil, err
	}
	if c.metrics, err = newMetrics(config, client.Discovery(), mapper); err != nil {
		return nil, err
	}
	informer := autoscalinginformers.NewHorizontalPodAutoscalerInformer(client, metav1.NamespaceAll, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	c.autoscalers = autoscalinglisters.NewHorizontalPodAutoscalerLister(informer.GetIndexer())
	own := controller.For(informer)
	own.Ignore = sameSpec
	return &controller.Controller{
		Name: name, Reconcile: c.reconcile, Workers: workers, Informers: []cache.SharedIndexInformer{informer},
		Sources: []controller.Source{own},
	}, nil
}

// sameSpec reports whether a change of an autoscaler can wait for the next period, like this
// controller's own changes of the status.
func sameSpec(before, now any) bool {
	a, aOK := before.(*autoscalingv2.HorizontalPodAutoscaler)
	b, bOK := now.(*autoscalingv2.HorizontalPodAutoscaler)
	return aOK && bOK && a.UID == b.UID && equality.Semantic.DeepEqual(a.Spec, b.Spec)
}

func (c *reconciler) reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	hpa, err := c.autoscalers.HorizontalPodAutoscalers(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		c.forget(key)
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if !c.podsSynced() {
		return untilSynced, nil
	}
	is := c.recall(key, hpa.UID)
	plan, err := c.sync(ctx, hpa, &is)
	if err != nil {
		return 0, err // decided anew, on the current state; no write must be remembered
	}
	is.memory = plan.Memory
	c.remember(key, is)
	for _, e := range plan.Events {
		c.events.Event(hpa, e.Type, e.Reason, e.Message)
	}
	if equality.Semantic.DeepEqual(plan.Status, hpa.Status) {
		return syncPeriod, nil
	}
	changed := hpa.DeepCopy()
	changed.Status = plan.Status
	if _, err := c.client.AutoscalingV2().HorizontalPodAutoscalers(hpa.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{}); err != nil {
		return syncPeriod, controller.IgnoreNotFound(err)
	}
	return syncPeriod, nil
}

// sync decides, and scales the target. It fails if the target has changed meanwhile.
func (c *reconciler) sync(ctx context.Context, hpa *autoscalingv2.HorizontalPodAutoscaler, is *remembered) (Plan, error) {
	of, err := c.scales.get(ctx, hpa.Namespace, &hpa.Spec.ScaleTargetRef)
	if err != nil {
		return WithoutScale(hpa, err, is.memory, c.now()), ctx.Err()
	}
	seen, err := c.observe(ctx, hpa, of, is)
	if err != nil {
		return Plan{}, err
	}
	plan := Decide(hpa, seen)
	if plan.Replicas == nil {
		return plan, nil
	}
	err = c.scales.set(ctx, hpa.Namespace, of, *plan.Replicas)
	if controller.IsConflict(err) || ctx.Err() != nil {
		return Plan{}, err
	}
	return Scaled(hpa, plan, err, c.now()), nil
}

// observe returns the input of a decision.
func (c *reconciler) observe(ctx context.Context, hpa *autoscalingv2.HorizontalPodAutoscaler, of *target, is *remembered) (Observed, error) {
	seen := Observed{Scale: of.scale, Memory: is.memory, Now: c.now()}
	if !NeedsMetrics(hpa, of.scale) {
		return seen, nil
	}
	text := of.scale.Status.Selector
	selector, err := labels.Parse(text)
	if text == "" || err != nil {
		is.selector, seen.Selector = nil, SelectorProblem(text, err, nil)
		return seen, nil
	}
	is.selector = selector
	if seen.Pods, err = c.pods.Pods(hpa.Namespace).List(selector); err != nil {
		return seen, fmt.Errorf("list pods: %w", err)
	}
	key := cache.MetaObjectToName(hpa)
	c.remember(key, *is)
	if seen.Selector = SelectorProblem(text, nil, c.scaling(key.Namespace, seen.Pods)); seen.Selector != nil {
		return seen, nil
	}
	for i := range hpa.Spec.Metrics {
		seen.Readings = append(seen.Readings, c.metrics.read(ctx, query{hpa.Namespace, selector}, &hpa.Spec.Metrics[i]))
	}
	return seen, ctx.Err()
}

// scaling returns the autoscalers of the namespace whose targets select one of the pods.
func (c *reconciler) scaling(namespace string, pods []*corev1.Pod) []Autoscaler {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []Autoscaler
	for key, is := range c.known {
		if key.Namespace != namespace || is.selector == nil {
			continue
		}
		if slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return is.selector.Matches(labels.Set(p.Labels)) }) {
			all = append(all, Autoscaler{key.Name, key.Namespace})
		}
	}
	slices.SortFunc(all, func(a, b Autoscaler) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

func (c *reconciler) recall(key cache.ObjectName, uid types.UID) remembered {
	c.mu.Lock()
	defer c.mu.Unlock()
	if is := c.known[key]; is.uid == uid {
		return is
	}
	return remembered{uid: uid}
}

func (c *reconciler) remember(key cache.ObjectName, is remembered) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known[key] = is
}

func (c *reconciler) forget(key cache.ObjectName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, key)
}
