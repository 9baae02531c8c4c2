package resourcequota

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"
	"k8s.io/utils/clock"
)

// resolver finds the version in which a resource is served. It caches answers of discovery for
// rediscoverPeriod.
type resolver struct {
	mapper *restmapper.DeferredDiscoveryRESTMapper
	clock  clock.PassiveClock

	mu    sync.Mutex
	since time.Time // guarded by mu
}

func newResolver(client discovery.DiscoveryInterface, clock clock.PassiveClock) *resolver {
	return &resolver{mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client)), clock: clock}
}

// resolve returns a version of a namespaced resource; false if it is not served.
func (r *resolver) resolve(resource schema.GroupResource) (schema.GroupVersionResource, bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := r.clock.Now(); now.Sub(r.since) >= rediscoverPeriod {
		r.since = now
		r.mapper.Reset()
	}
	none := schema.GroupVersionResource{}
	candidates, err := r.mapper.ResourcesFor(resource.WithVersion(""))
	if err != nil && !meta.IsNoMatchError(err) {
		return none, false, fmt.Errorf("look up %s: %w", resource, err)
	}
	for _, candidate := range candidates {
		if candidate.GroupResource() != resource {
			continue // a prefix of its name also finds a group
		}
		kind, err := r.mapper.KindFor(candidate)
		if err != nil {
			return none, false, fmt.Errorf("look up the kind of %s: %w", resource, err)
		}
		mapping, err := r.mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return none, false, fmt.Errorf("look up the scope of %s: %w", resource, err)
		}
		return candidate, mapping.Scope.Name() == meta.RESTScopeNameNamespace, nil
	}
	return none, false, nil
}
