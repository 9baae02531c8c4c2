// Package resourcequota keeps the status of ResourceQuotas: the usage of the limited resources. Admission
// (package admissionchain of the API server) refuses requests that would exceed a limit, and charges the
// others; this controller counts the existing objects, and so returns the usage of deleted ones.
//
//	quota added, or its limits changed      ──▶ its key, at once
//	an object is gone, or uses less         ──▶ the keys of the quotas of its namespace that limit it
//	admission has charged the quota, or
//	an object has appeared in the cache     ──▶ its key, after settlePeriod without another charge or object
//	key ──▶ monitors (monitors.go) of the resources that the quota limits
//	    ──▶ the usage of all objects, from the caches ──▶ Decide (plan.go) ──▶ one write of the status
//
// A resource is watched only while some quota limits it: pods, services and volume claims in the caches
// that the other controllers have, all others by their metadata.
//
// The write is conditioned on uid and resourceVersion: it conflicts with a charge that this controller has not
// seen. A request that is charged but fails later, or whose object is not in the cache yet when the objects are
// counted, makes the status wrong; and so does a request that was not charged, because admission did not have
// the quota yet. So the objects are counted again after the last change of the status and after the last new
// object. Until then, requests are in flight, and a count would remove their charges: then objects are counted
// only when upstream's controller counts them, too: after a deletion or a lower usage, and at a resync.
package resourcequota

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	quotav1 "k8s.io/apiserver/pkg/quota/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/controller"
	"github.com/coppice-dev/coppice/internal/controller/quota"
)

const (
	name    = "resourcequota-controller"
	workers = 2
	// freedPeriod is the time during which events are collected before the objects are counted again.
	freedPeriod = 20 * time.Millisecond
	// rediscoverPeriod is how long it may take until a new resource is counted.
	rediscoverPeriod = 10 * time.Second
)

// Config configures a Controller. All fields are required.
type Config struct {
	Client   kubernetes.Interface
	Metadata metadata.Interface
	// Pods, Services and Claims are shared caches; the caller runs them.
	Pods, Services, Claims cache.SharedIndexInformer
	Clock                  clock.WithTicker
	Log                    *slog.Logger
}

// Controller keeps the status of ResourceQuotas.
type Controller struct {
	Config
	informer cache.SharedIndexInformer
	quotas   corelisters.ResourceQuotaLister
	monitors *monitors
	requests chan controller.Request

	mu     sync.Mutex
	counts map[cache.ObjectName]Count // guarded by mu; by quota
}

// New returns the controller. It sends no requests.
func New(c Config) (*Controller, error) {
	if c.Client == nil || c.Metadata == nil || c.Pods == nil || c.Services == nil || c.Claims == nil || c.Clock == nil || c.Log == nil {
		return nil, errors.New("resourcequota: clients, caches, a clock and a logger are required")
	}
	r := &Controller{
		Config: c, requests: make(chan controller.Request), counts: map[cache.ObjectName]Count{},
		informer: coreinformers.NewResourceQuotaInformer(c.Client, metav1.NamespaceAll, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}),
	}
	r.quotas = corelisters.NewResourceQuotaLister(r.informer.GetIndexer())
	r.monitors = newMonitors(map[schema.GroupResource]cache.SharedIndexInformer{
		corev1.Resource("pods"): c.Pods, corev1.Resource("services"): c.Services, corev1.Resource("persistentvolumeclaims"): c.Claims,
	}, c.Metadata, newResolver(c.Client.Discovery(), c.Clock))
	r.monitors.log, r.monitors.freed, r.monitors.added = c.Log, r.freed, r.added
	r.monitors.known = func(ctx context.Context, key cache.ObjectName) { r.demand(ctx, key, 0) }
	return r, nil
}

// Run runs the controller until ctx ends, and returns when all its goroutines have ended. It can run only
// once.
func (r *Controller) Run(ctx context.Context) error {
	defer r.monitors.started.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	registration, err := r.informer.AddEventHandler(controller.GuardedHandler(ctx, r.Log, name, r.handler(ctx)))
	if err != nil {
		return fmt.Errorf("%s: watch: %w", name, err)
	}
	defer func() { _ = r.informer.RemoveEventHandler(registration) }()
	c := controller.Controller{
		Name: name, Reconcile: r.reconcile, Requests: r.requests, Workers: workers, Informers: []cache.SharedIndexInformer{r.informer},
	}
	return c.Run(ctx, r.Log, r.Clock)
}

// handler requests counts of quotas that are new, were charged, or have other limits than before.
func (r *Controller) handler(ctx context.Context) cache.ResourceEventHandler {
	demand := func(obj any) {
		if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = last.Obj
		}
		if q, ok := obj.(*corev1.ResourceQuota); ok {
			r.demand(ctx, cache.MetaObjectToName(q), 0)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: demand,
		UpdateFunc: func(before, now any) {
			was, wasQuota := before.(*corev1.ResourceQuota)
			is, isQuota := now.(*corev1.ResourceQuota)
			switch {
			case !wasQuota || !isQuota:
			case was.UID != is.UID || !equality.Semantic.DeepEqual(was.Spec, is.Spec):
				demand(now)
			case !equality.Semantic.DeepEqual(was.Status, is.Status):
				r.charged(ctx, cache.MetaObjectToName(is))
			}
		},
		DeleteFunc: demand,
	}
}

// demand requests a count of a quota even while admission charges it.
func (r *Controller) demand(ctx context.Context, key cache.ObjectName, after time.Duration) {
	r.note(key, func(c *Count) { c.Demanded = true })
	r.ask(ctx, key, after)
}

// charged requests a count of a quota once its charges and the objects that they were for have come to an end.
func (r *Controller) charged(ctx context.Context, key cache.ObjectName) {
	r.note(key, func(c *Count) { c.Charged = r.Clock.Now() })
	r.ask(ctx, key, settlePeriod)
}

// note updates the Count of a quota.
func (r *Controller) note(key cache.ObjectName, change func(*Count)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	count := r.counts[key]
	change(&count)
	r.counts[key] = count
}

// begin returns how long to wait before a quota is counted. If the count is due now, begin clears the
// demand for it.
func (r *Controller) begin(key cache.ObjectName) (wait time.Duration) {
	now := r.Clock.Now()
	r.note(key, func(c *Count) {
		if wait = c.Wait(now); wait == 0 {
			c.Demanded, c.Began = false, now
		}
	})
	return wait
}

// ask enqueues the key of a quota.
func (r *Controller) ask(ctx context.Context, key cache.ObjectName, after time.Duration) {
	select {
	case r.requests <- controller.Request{Key: key, After: after}:
	case <-ctx.Done():
	}
}

// freed requests counts of the concerned quotas of a namespace that limit a resource.
func (r *Controller) freed(ctx context.Context, resource schema.GroupResource, namespace string, concerns func(*corev1.ResourceQuota) bool) {
	for _, q := range r.limiting(resource, namespace) {
		if concerns(q) {
			r.demand(ctx, cache.MetaObjectToName(q), freedPeriod)
		}
	}
}

// added requests counts of the quotas of a namespace that limit a resource, once no more objects appear. An earlier
// count did not include the new object.
func (r *Controller) added(ctx context.Context, resource schema.GroupResource, namespace string) {
	for _, q := range r.limiting(resource, namespace) {
		r.charged(ctx, cache.MetaObjectToName(q))
	}
}

// limiting returns the quotas of a namespace that limit a resource.
func (r *Controller) limiting(resource schema.GroupResource, namespace string) []*corev1.ResourceQuota {
	quotas, err := r.quotas.ResourceQuotas(namespace).List(labels.Everything())
	if err != nil {
		return nil // a cache returns no errors
	}
	return slices.DeleteFunc(quotas, func(q *corev1.ResourceQuota) bool {
		return !slices.Contains(quota.Resources(q.Spec.Hard), resource)
	})
}

// reconcile counts the usage of a quota if its count is due, and returns the time until the next count.
func (r *Controller) reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	q, err := r.quotas.ResourceQuotas(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		r.forget(key)
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if wait := r.begin(key); wait > 0 {
		return wait, nil
	}
	requeueAfter, err := r.count(ctx, key, q)
	if err != nil {
		r.note(key, func(c *Count) { c.Demanded = true })
	}
	return requeueAfter, err
}

// forget is called when a quota is gone.
func (r *Controller) forget(key cache.ObjectName) {
	r.monitors.forget(key)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.counts, key)
}

// count counts the usage of a quota.
func (r *Controller) count(ctx context.Context, key cache.ObjectName, q *corev1.ResourceQuota) (time.Duration, error) {
	resources := quota.Resources(q.Spec.Hard)
	allServed, err := r.monitors.want(ctx, key, resources)
	if err != nil {
		return 0, err
	}
	if r.monitors.areComing(resources) {
		// Without a count, a resource must not be in the status: admission would refuse it to all users.
		return rediscoverPeriod, nil
	}
	counted, err := quotav1.CalculateUsage(q.Namespace, q.Spec.Scopes, q.Spec.Hard, r.monitors.registry(), q.Spec.ScopeSelector)
	if err != nil {
		return 0, fmt.Errorf("count the usage of quota %s: %w", key, err)
	}
	if status, changed := Decide(q, counted); changed {
		q = q.DeepCopy()
		q.Status = status
		if _, err := r.Client.CoreV1().ResourceQuotas(q.Namespace).UpdateStatus(ctx, q, metav1.UpdateOptions{}); err != nil {
			return 0, controller.IgnoreNotFound(err)
		}
	}
	if !allServed {
		return rediscoverPeriod, nil
	}
	return resyncPeriod, nil
}
