package discovery

import (
	"context"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/ownerreferences"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/builtin"
)

// Served finds the resources of served kinds, in the server's own tables and caches. It reads a definition
// live only if neither has the kind.
type Served struct {
	builtin map[schema.GroupKind]ownerreferences.ServedResource
	stored  map[schema.GroupResource]bool // the built-in kinds, under the name by which they are stored
	// definitions returns the CustomResourceDefinitions, as cached; nil until the API is installed.
	definitions func() cache.Store
	read        ReadDefinition
	// aggregated are the kinds of other servers.
	aggregated ownerreferences.Served
}

// ReadDefinition reads a CustomResourceDefinition live.
type ReadDefinition func(ctx context.Context, name string) (*apiextensionsv1.CustomResourceDefinition, error)

// NewServed returns a Served with the built-in kinds of a minor of Kubernetes 1, the kinds of established
// CustomResourceDefinitions, and the kinds of other servers. definitions may return nil until the API is installed.
func NewServed(minor uint, definitions func() cache.Store, read ReadDefinition, aggregated ownerreferences.Served) *Served {
	s := &Served{definitions: definitions, read: read, aggregated: aggregated, builtin: map[schema.GroupKind]ownerreferences.ServedResource{
		{Group: apiextensionsv1.GroupName, Kind: "CustomResourceDefinition"}: {Resource: "customresourcedefinitions"},
	}, stored: map[schema.GroupResource]bool{{Group: apiextensionsv1.GroupName, Resource: "customresourcedefinitions"}: true}}
	serves := builtin.Served(minor)
	for _, k := range builtin.Resources() {
		s.stored[k.GroupResource()] = true
		if !serves(k.GroupVersion, k.Plural) {
			continue
		}
		served := ownerreferences.ServedResource{Resource: k.Plural, Namespaced: k.Namespaced}
		s.builtin[k.GVK().GroupKind()] = served
		for _, p := range k.Peers {
			s.builtin[schema.GroupKind{Group: p.GroupVersion.Group, Kind: k.Kind}] = served
		}
	}
	return s
}

// IsBuiltin reports whether objects of a built-in kind are stored under the name of a resource.
func (s *Served) IsBuiltin(resource schema.GroupResource) bool { return s.stored[resource] }

// ResourceOf implements ownerreferences.Kinds. A kind is served in all versions or in none:
// the version of an owner reference is a hint (R1).
func (s *Served) ResourceOf(kind schema.GroupKind) (ownerreferences.ServedResource, bool) {
	if resource, ok := s.builtin[kind]; ok {
		return resource, true
	}
	definitions := s.definitions()
	if definitions == nil {
		return ownerreferences.ServedResource{}, false
	}
	for _, obj := range definitions.List() {
		if d, ok := obj.(*apiextensionsv1.CustomResourceDefinition); ok {
			if resource, ok := serves(d, kind); ok {
				return resource, true
			}
		}
	}
	return s.aggregated(kind)
}

// ReadResourceOf implements ownerreferences.Kinds. It reads the definition of a kind that is not in the cache: a client
// that has seen the definition established may be ahead of the cache. It reads the definition with the usual plural of the
// kind; a kind with another plural is served once the cache has it. Before the API is installed, it reads nothing.
func (s *Served) ReadResourceOf(ctx context.Context, kind schema.GroupKind) (ownerreferences.ServedResource, bool) {
	if s.definitions() == nil || !strings.Contains(kind.Group, ".") || kind.Kind == "" {
		return ownerreferences.ServedResource{}, false // the group of a definition has a dot
	}
	plural, _ := meta.UnsafeGuessKindToResource(kind.WithVersion("v1"))
	found, err := s.read(ctx, plural.Resource+"."+kind.Group)
	if err != nil {
		return ownerreferences.ServedResource{}, false // not found, or unreadable and therefore not served
	}
	return serves(found, kind)
}

// serves returns the resource of a kind if the definition is established and has this kind.
func serves(d *apiextensionsv1.CustomResourceDefinition, kind schema.GroupKind) (ownerreferences.ServedResource, bool) {
	if d.Spec.Group != kind.Group || d.Status.AcceptedNames.Kind != kind.Kind || !apihelpers.IsCRDConditionTrue(d, apiextensionsv1.Established) {
		return ownerreferences.ServedResource{}, false
	}
	return ownerreferences.ServedResource{Resource: d.Status.AcceptedNames.Plural, Namespaced: d.Spec.Scope == apiextensionsv1.NamespaceScoped}, true
}
