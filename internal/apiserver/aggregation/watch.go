package aggregation

import (
	"context"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/coppice-dev/coppice/internal/controller"
)

// watch requests checks when Services or EndpointSlices of servers change, until ctx ends. It keeps none of
// these objects: a check reads the objects that it needs from the server's own caches.
func (a *Aggregator) watch(ctx context.Context, running *sync.WaitGroup) {
	for resource, service := range map[schema.GroupVersionResource]func(metav1.Object) string{
		{Version: "v1", Resource: "services"}: metav1.Object.GetName,
		{Group: discoveryv1.GroupName, Version: "v1", Resource: "endpointslices"}: func(slice metav1.Object) string {
			return slice.GetLabels()[discoveryv1.LabelServiceName]
		},
	} {
		objects := a.metadata.Resource(resource)
		reflector := cache.NewReflectorWithOptions(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return objects.List(ctx, o) },
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
				return objects.Watch(ctx, o)
			},
		}, &metav1.PartialObjectMetadata{}, observer{a.checkOn(ctx, service)}, cache.ReflectorOptions{
			Name: "aggregation", TypeDescription: resource.Resource,
			Backoff: &wait.Backoff{Duration: 100 * time.Millisecond, Cap: checkInterval, Steps: 12, Factor: 2, Jitter: 1},
		})
		running.Go(func() { reflector.RunWithContext(ctx) })
	}
}

// checkOn returns a function that requests checks of the servers behind the Service to which an object
// belongs.
func (a *Aggregator) checkOn(ctx context.Context, service func(metav1.Object) string) func(any) {
	return func(obj any) {
		o, ok := obj.(metav1.Object)
		if !ok {
			return
		}
		for _, each := range a.services.GetStore().List() {
			s, ok := each.(*apiregistrationv1.APIService)
			if !ok || s.Spec.Service == nil || s.Spec.Service.Namespace != o.GetNamespace() || s.Spec.Service.Name != service(o) {
				continue
			}
			select {
			case a.requests <- controller.Request{Key: cache.MetaObjectToName(s)}:
			case <-ctx.Done():
			}
		}
	}
}

// observer is a store for a Reflector that keeps nothing.
type observer struct{ observe func(obj any) }

var _ cache.ReflectorStore = observer{}

// Add implements cache.ReflectorStore.
func (o observer) Add(obj any) error { o.observe(obj); return nil }

// Update implements cache.ReflectorStore.
func (o observer) Update(obj any) error { o.observe(obj); return nil }

// Delete implements cache.ReflectorStore.
func (o observer) Delete(obj any) error { o.observe(obj); return nil }

// Replace implements cache.ReflectorStore.
func (o observer) Replace(all []any, _ string) error {
	for _, obj := range all {
		o.observe(obj)
	}
	return nil
}

// Resync implements cache.ReflectorStore.
func (observer) Resync() error { return nil }
