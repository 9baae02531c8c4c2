package apiserver

import (
	"net/http"
	"sync/atomic"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	restregistry "k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/internal/apiserver/discovery"
	"github.com/coppice-dev/coppice/internal/apiserver/serviceendpoints"
)

// installed are the parts of a server that exist once its API is installed.
type installed struct {
	handler     http.Handler              // of all requests
	definitions cache.SharedIndexInformer // of CustomResourceDefinitions
	core        map[string]restregistry.Storage
	services    serviceendpoints.Lookup
	groups      *discovery.Groups
}

// installedAPI gives the installed parts to parts that are made before: k8s.io/apiserver wants clients, authentication
// and admission in its configuration, and they use the registries when requests come. register sets it, at the end. No
// other value of the assembly changes after it has been passed on.
//
// Before, its methods return zero values. It is safe for concurrent use.
type installedAPI struct{ parts atomic.Pointer[installed] }

func (a *installedAPI) get() installed {
	if parts := a.parts.Load(); parts != nil {
		return *parts
	}
	return installed{}
}

// handler returns the handler of all requests.
func (a *installedAPI) handler() http.Handler { return a.get().handler }

// registry returns the registry of a resource of the core group.
func (a *installedAPI) registry(resource string) restregistry.Storage { return a.get().core[resource] }

// services returns the objects behind Services.
func (a *installedAPI) services() (serviceendpoints.Lookup, bool) {
	parts := a.parts.Load()
	if parts == nil {
		return serviceendpoints.Lookup{}, false
	}
	return parts.services, true
}

// groups returns the list of API groups.
func (a *installedAPI) groups() *discovery.Groups { return a.get().groups }

// definitions returns the CustomResourceDefinitions.
func (a *installedAPI) definitions() cache.Store {
	if informer := a.get().definitions; informer != nil {
		return informer.GetStore()
	}
	return nil
}

// definition returns a CustomResourceDefinition by its name.
func (a *installedAPI) definition(name string) (*apiextensionsv1.CustomResourceDefinition, bool) {
	known := a.definitions()
	if known == nil {
		return nil, false
	}
	obj, _, _ := known.GetByKey(name) // never an error
	found, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
	return found, ok
}

// syncedDefinitions is like definitions, and reports whether the informer has synced.
func (a *installedAPI) syncedDefinitions() (known cache.Store, synced bool) {
	informer := a.get().definitions
	if informer == nil {
		return nil, false
	}
	return informer.GetStore(), informer.HasSynced()
}
