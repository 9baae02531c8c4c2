package apiserver

import (
	"sync/atomic"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/ownerreferences"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/builtin"
)

// servedKinds tells where the objects of a kind are served, as the server itself
// knows it: nothing is asked over the API.
type servedKinds struct {
	builtin map[schema.GroupKind]ownerreferences.Where
	// definitions is set once the server of custom resources is there, before any
	// request is.
	definitions atomic.Pointer[cache.Store]
}

func newServedKinds() *servedKinds {
	s := &servedKinds{builtin: map[schema.GroupKind]ownerreferences.Where{
		{Group: apiextensionsv1.GroupName, Kind: "CustomResourceDefinition"}: {Resource: "customresourcedefinitions"},
	}}
	for _, k := range builtin.Resources() {
		s.builtin[k.GVK().GroupKind()] = ownerreferences.Where{Resource: k.Plural, Namespaced: k.Namespaced}
	}
	return s
}

// where implements owners.Served. A kind is served by all versions or by none: the
// version of an owner reference is a hint (R1).
func (s *servedKinds) where(kind schema.GroupKind) (ownerreferences.Where, bool) {
	if where, ok := s.builtin[kind]; ok {
		return where, true
	}
	definitions := s.definitions.Load()
	if definitions == nil {
		return ownerreferences.Where{}, false
	}
	for _, obj := range (*definitions).List() {
		d, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
		if !ok || d.Spec.Group != kind.Group || d.Status.AcceptedNames.Kind != kind.Kind {
			continue
		}
		if apihelpers.IsCRDConditionTrue(d, apiextensionsv1.Established) {
			return ownerreferences.Where{Resource: d.Status.AcceptedNames.Plural, Namespaced: d.Spec.Scope == apiextensionsv1.NamespaceScoped}, true
		}
	}
	return ownerreferences.Where{}, false
}
