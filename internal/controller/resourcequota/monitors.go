package resourcequota

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	quotav1 "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/internal/controller"
	"github.com/coppice-dev/coppice/internal/controller/quota"
)

// monitors watch the resources that quotas limit, each as long as any quota limits it.
type monitors struct {
	// shared are the caches of whole objects, run by the caller. For all other resources, metadata is
	// enough.
	shared   map[schema.GroupResource]cache.SharedIndexInformer
	typed    map[schema.GroupResource]quotav1.Evaluator // of shared
	metadata metadata.Interface
	resolver *resolver
	log      *slog.Logger
	// freed is called when the usage of a resource in a namespace may have decreased; concerns reports
	// whether a quota is concerned.
	freed func(ctx context.Context, resource schema.GroupResource, namespace string, concerns func(*corev1.ResourceQuota) bool)
	// added is called when an object of a resource has appeared in a namespace.
	added func(ctx context.Context, resource schema.GroupResource, namespace string)
	// known is called for each quota that limits a resource, when the objects of the resource are known.
	known func(ctx context.Context, quota cache.ObjectName)

	started sync.WaitGroup
	mu      sync.Mutex
	running map[schema.GroupResource]*monitor           // guarded by mu
	wanted  map[cache.ObjectName][]schema.GroupResource // guarded by mu; by quota
}

// monitor watches one resource.
type monitor struct {
	version  schema.GroupVersionResource // empty for a shared cache
	since    time.Time
	informer cache.SharedIndexInformer
	stop     func()
}

func newMonitors(shared map[schema.GroupResource]cache.SharedIndexInformer, metadata metadata.Interface, resolver *resolver) *monitors {
	m := &monitors{
		shared: shared, typed: map[schema.GroupResource]quotav1.Evaluator{}, metadata: metadata, resolver: resolver,
		running: map[schema.GroupResource]*monitor{}, wanted: map[cache.ObjectName][]schema.GroupResource{},
	}
	for _, evaluator := range quota.Evaluators(m.list) {
		m.typed[evaluator.GroupResource()] = evaluator
	}
	return m
}

// list is the quota.List of the shared caches.
func (m *monitors) list(resource schema.GroupResource, namespace string) ([]runtime.Object, error) {
	cached, err := m.shared[resource].GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
	if err != nil {
		return nil, err
	}
	objects := make([]runtime.Object, 0, len(cached))
	for _, obj := range cached {
		if o, ok := obj.(runtime.Object); ok {
			objects = append(objects, o)
		}
	}
	return objects, nil
}

// want starts monitors of the resources that a quota limits, in place of its earlier ones. It reports
// whether all of them are served.
func (m *monitors) want(ctx context.Context, quota cache.ObjectName, resources []schema.GroupResource) (bool, error) {
	versions := map[schema.GroupResource]schema.GroupVersionResource{}
	for _, resource := range resources {
		if m.shared[resource] != nil {
			versions[resource] = schema.GroupVersionResource{}
			continue
		}
		version, served, err := m.resolver.resolve(resource)
		if err != nil {
			return false, err
		}
		if served {
			versions[resource] = version
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.replaceWanted(quota, resources)
	for _, resource := range resources {
		version, served := versions[resource]
		if !served {
			m.stop(resource) // its cache would be empty when it is served again
			continue
		}
		if err := m.start(ctx, resource, version); err != nil {
			return false, err
		}
	}
	return len(versions) == len(resources), nil
}

// stop stops the monitor of a resource, if there is one.
func (m *monitors) stop(resource schema.GroupResource) {
	if running := m.running[resource]; running != nil {
		running.stop()
		delete(m.running, resource)
	}
}

// forget drops a quota that is gone.
func (m *monitors) forget(quota cache.ObjectName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.replaceWanted(quota, nil)
}

// replaceWanted records the resources that a quota limits, and stops the monitors of resources that no
// quota limits any more.
func (m *monitors) replaceWanted(quota cache.ObjectName, resources []schema.GroupResource) {
	before := m.wanted[quota]
	m.wanted[quota] = resources
	if len(resources) == 0 {
		delete(m.wanted, quota)
	}
	for _, resource := range before {
		if len(m.wanting(resource)) == 0 {
			m.stop(resource)
		}
	}
}

// wanting returns the quotas that limit a resource.
func (m *monitors) wanting(resource schema.GroupResource) []cache.ObjectName {
	var quotas []cache.ObjectName
	for quota, resources := range m.wanted {
		if slices.Contains(resources, resource) {
			quotas = append(quotas, quota)
		}
	}
	return quotas
}

// start starts the monitor of a resource, unless it runs already.
func (m *monitors) start(ctx context.Context, resource schema.GroupResource, version schema.GroupVersionResource) error {
	if running := m.running[resource]; running != nil {
		if running.version == version {
			return nil
		}
		m.stop(resource) // it is served in another version now
	}
	ctx, cancel := context.WithCancel(ctx)
	informer := m.shared[resource]
	isOwn := informer == nil
	if isOwn {
		var err error
		if informer, err = m.newInformer(version); err != nil {
			cancel()
			return err
		}
	}
	registration, err := informer.AddEventHandler(controller.GuardedHandler(ctx, m.log, name, m.handler(ctx, resource)))
	if err != nil {
		cancel()
		return fmt.Errorf("watch %s: %w", resource, err)
	}
	if isOwn {
		m.started.Go(func() { informer.RunWithContext(ctx) })
	}
	m.started.Go(func() {
		select {
		case <-registration.HasSyncedChecker().Done():
			m.announce(ctx, resource)
		case <-ctx.Done():
		}
	})
	m.running[resource] = &monitor{version: version, since: m.resolver.clock.Now(), informer: informer, stop: func() {
		cancel()
		_ = informer.RemoveEventHandler(registration)
	}}
	return nil
}

// areComing reports whether the first list of one of the resources was requested less than
// rediscoverPeriod ago and has not arrived yet: then announce is called soon.
func (m *monitors) areComing(resources []schema.GroupResource) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(resources, func(resource schema.GroupResource) bool {
		running := m.running[resource]
		return running != nil && !running.informer.HasSynced() && m.resolver.clock.Since(running.since) < rediscoverPeriod
	})
}

// newInformer returns the metadata cache of a resource whose objects are only counted.
func (m *monitors) newInformer(version schema.GroupVersionResource) (cache.SharedIndexInformer, error) {
	informer := metadatainformer.NewFilteredMetadataInformer(m.metadata, version, metav1.NamespaceAll, 0,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}, nil).Informer()
	err := informer.SetTransform(func(obj any) (any, error) {
		o, ok := obj.(metav1.Object)
		if !ok {
			return obj, nil
		}
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(),
		}}, nil
	})
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", version.GroupResource(), err)
	}
	return informer, nil
}

// announce calls known for the quotas that limit a resource.
func (m *monitors) announce(ctx context.Context, resource schema.GroupResource) {
	m.mu.Lock()
	quotas := m.wanting(resource)
	m.mu.Unlock()
	for _, quota := range quotas {
		m.known(ctx, quota)
	}
}

// handler calls added when an object has appeared since the first list, and freed when an object is gone or its usage
// has changed.
func (m *monitors) handler(ctx context.Context, resource schema.GroupResource) cache.ResourceEventHandler {
	handler := cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, isInInitialList bool) {
			if o, ok := obj.(metav1.Object); ok && !isInInitialList {
				m.added(ctx, resource, o.GetNamespace())
			}
		},
		DeleteFunc: func(obj any) {
			if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = last.Obj
			}
			if o, ok := obj.(metav1.Object); ok {
				m.freed(ctx, resource, o.GetNamespace(), func(*corev1.ResourceQuota) bool { return true })
			}
		},
	}
	evaluator := m.typed[resource]
	if evaluator == nil {
		return handler
	}
	handler.UpdateFunc = func(before, now any) {
		was, wasObject := before.(runtime.Object)
		is, isObject := now.(runtime.Object)
		if o, ok := now.(metav1.Object); ok && wasObject && isObject {
			m.freed(ctx, resource, o.GetNamespace(), func(q *corev1.ResourceQuota) bool { return usesOther(evaluator, q, was, is) })
		}
	}
	return handler
}

// usesOther reports whether a change of an object has changed its usage of a quota.
func usesOther(evaluator quotav1.Evaluator, quota *corev1.ResourceQuota, before, now runtime.Object) bool {
	was, err := evaluator.Matches(quota, before)
	if err != nil {
		return true
	}
	is, err := evaluator.Matches(quota, now)
	if err != nil {
		return true
	}
	if !was || !is {
		return was != is
	}
	used, err := evaluator.Usage(before)
	if err != nil {
		return true
	}
	uses, err := evaluator.Usage(now)
	return err != nil || !quotav1.Equals(used, uses)
}

// registry returns the evaluators of the resources whose objects are known.
func (m *monitors) registry() quotav1.Registry {
	m.mu.Lock()
	defer m.mu.Unlock()
	registry := generic.NewRegistry(nil)
	for resource, running := range m.running {
		if !running.informer.HasSynced() {
			continue
		}
		evaluator := m.typed[resource]
		if evaluator == nil {
			evaluator = quota.Count(resource, func(namespace string) (int, error) {
				keys, err := running.informer.GetIndexer().IndexKeys(cache.NamespaceIndex, namespace)
				return len(keys), err
			})
		}
		registry.Add(evaluator)
	}
	return registry
}
