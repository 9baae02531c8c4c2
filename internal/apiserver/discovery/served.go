package discovery

import (
	"sync/atomic"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/ownerreferences"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/builtin"
)

// Served knows which kinds the server serves, from the server's own tables and caches:
// nothing is requested over the API.
type Served struct {
	builtin map[schema.GroupKind]ownerreferences.ServedResource
	stored  map[schema.GroupResource]bool // the built-in kinds, under the name by which they are stored
	// definitions are the CustomResourceDefinitions; nil until SetDefinitions.
	definitions atomic.Pointer[cache.Store]
	// aggregated are the kinds of other servers; nil until SetAggregated.
	aggregated atomic.Pointer[ownerreferences.Served]
}

// NewServed returns the built-in kinds.
func NewServed() *Served {
	s := &Served{builtin: map[schema.GroupKind]ownerreferences.ServedResource{
		{Group: apiextensionsv1.GroupName, Kind: "CustomResourceDefinition"}: {Resource: "customresourcedefinitions"},
	}, stored: map[schema.GroupResource]bool{{Group: apiextensionsv1.GroupName, Resource: "customresourcedefinitions"}: true}}
	for _, k := range builtin.Resources() {
		s.stored[k.GroupResource()] = true
		served := ownerreferences.ServedResource{Resource: k.Plural, Namespaced: k.Namespaced}
		s.builtin[k.GVK().GroupKind()] = served
		for _, p := range k.Peers {
			s.builtin[schema.GroupKind{Group: p.GroupVersion.Group, Kind: k.Kind}] = served
		}
	}
	return s
}

// SetDefinitions adds the kinds of established CustomResourceDefinitions. It is called
// before the server serves.
func (s *Served) SetDefinitions(definitions cache.Store) { s.definitions.Store(&definitions) }

// IsBuiltin reports whether objects of a built-in kind are stored under the name of a resource.
func (s *Served) IsBuiltin(resource schema.GroupResource) bool { return s.stored[resource] }

// SetAggregated adds the kinds of other servers. It is called before the server serves.
func (s *Served) SetAggregated(aggregated ownerreferences.Served) { s.aggregated.Store(&aggregated) }

// ResourceOf implements ownerreferences.Served. A kind is served in all versions or in none:
// the version of an owner reference is a hint (R1).
func (s *Served) ResourceOf(kind schema.GroupKind) (ownerreferences.ServedResource, bool) {
	if resource, ok := s.builtin[kind]; ok {
		return resource, true
	}
	definitions := s.definitions.Load()
	if definitions == nil {
		return ownerreferences.ServedResource{}, false
	}
	for _, obj := range (*definitions).List() {
		d, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
		if !ok || d.Spec.Group != kind.Group || d.Status.AcceptedNames.Kind != kind.Kind {
			continue
		}
		if apihelpers.IsCRDConditionTrue(d, apiextensionsv1.Established) {
			return ownerreferences.ServedResource{Resource: d.Status.AcceptedNames.Plural, Namespaced: d.Spec.Scope == apiextensionsv1.NamespaceScoped}, true
		}
	}
	if aggregated := s.aggregated.Load(); aggregated != nil {
		return (*aggregated)(kind)
	}
	return ownerreferences.ServedResource{}, false
}
