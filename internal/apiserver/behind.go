package apiserver

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/storage"
)

// IsBehind reports whether a cache of a resource that has reached a resourceVersion is behind a state of the store.
type IsBehind func(resource schema.GroupResource, resourceVersion string) bool

// caches are all caches that a server answers from.
type caches struct {
	storages *storage.Stack
	schemes  registry.Schemes
	shared   sharedInformers
	others   map[schema.GroupResource]cache.SharedIndexInformer
}

// sharedInformers returns the informer of a resource, and creates it with the first request. It is nil for resources that
// client-go does not know.
type sharedInformers func(schema.GroupVersionResource) cache.SharedIndexInformer

// caches returns the caches of a server.
func (f *foundation) caches(a *apis) caches {
	shared := func(resource schema.GroupVersionResource) cache.SharedIndexInformer {
		if found, err := f.informers.ForResource(resource); err == nil {
			return found.Informer()
		}
		return nil
	}
	return caches{storages: a.storages, schemes: f.schemes, shared: shared, others: map[schema.GroupResource]cache.SharedIndexInformer{
		apiextensionsv1.Resource("customresourcedefinitions"): a.definitions,
		apiregistrationv1.Resource("apiservices"):             f.aggregation.Services(),
	}}
}

// Behind returns the given resources whose caches are behind: the watch caches, from which clients read, and the
// informers, from which the server itself decides about requests.
func (s *Server) Behind(resources []schema.GroupResource, isBehind IsBehind) []string {
	behind := s.caches.storages.Behind(isBehind)
	check := func(resource schema.GroupResource, informer cache.SharedIndexInformer) {
		// An informer that nobody has started has not synced.
		if informer != nil && informer.HasSynced() && isBehind(resource, informer.GetStore().LastStoreSyncResourceVersion()) {
			behind = append(behind, resource.String())
		}
	}
	for _, resource := range resources {
		check(resource, s.caches.others[resource])
		for _, version := range s.caches.schemes.External.PrioritizedVersionsForGroup(resource.Group) {
			check(resource, s.caches.shared(version.WithResource(resource.Resource)))
		}
	}
	return behind
}
