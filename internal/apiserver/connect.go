package apiserver

import (
	"context"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/apiserver/aggregation"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/rbac"
	"github.com/coppice-dev/coppice/internal/apiserver/definitions"
	"github.com/coppice-dev/coppice/internal/apiserver/discovery"
	"github.com/coppice-dev/coppice/internal/apiserver/faults"
	"github.com/coppice-dev/coppice/internal/apiserver/inprocess"
	"github.com/coppice-dev/coppice/internal/apiserver/openapi"
	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/builtin"
	"github.com/coppice-dev/coppice/internal/apiserver/serviceendpoints"
)

// foundation is the configuration of the generic server, with the clients, informers and controllers that work
// through the loopback. Nothing that runs keeps it: it holds the configuration, which is for assembly only.
type foundation struct {
	schemes   registry.Schemes
	base      *genericapiserver.Config
	installed *installedAPI
	start     *start

	loopback    *rest.Config                  // with the rights of an administrator
	client      kubernetes.Interface          // by loopback, like the other clients
	definitions apiextensionsclient.Interface // of CustomResourceDefinitions
	objects     metadata.Interface
	whole       dynamic.Interface
	informers   informers.SharedInformerFactory
	mapper      *restmapper.DeferredDiscoveryRESTMapper // for admission; reset when CustomResourceDefinitions change

	served     *discovery.Served
	mergeTypes *openapi.MergeTypes
	// establisher establishes definitions; without effect on a store that several servers share.
	establisher *definitions.Establisher
	// endpoints resolves the Services of webhooks and aggregated servers.
	endpoints *serviceendpoints.Resolver
	// aggregation serves the groups of other servers.
	aggregation *aggregation.Aggregator
	roles       *rbac.Aggregator
	faults      *faults.Injector
}

// connect creates the foundation.
func connect(c completedConfig) (*foundation, error) {
	f := &foundation{schemes: builtin.NewSchemes(), installed: &installedAPI{}, start: newStart()}
	connections := &faults.Connections{}
	c.Listener = connections.Listener(c.Listener)
	f.endpoints = serviceendpoints.NewResolver(f.installed.services)
	known := f.installed.syncedDefinitions
	if c.Store.Shared() {
		known = func() (cache.Store, bool) { return nil, false }
	}
	f.establisher = definitions.NewEstablisher(c.Now, known, func() bool { return !f.faults.Late(faults.DefinitionLate) })
	var err error
	if f.base, err = baseConfig(c, f.schemes, inprocess.NewLoopback(f.installed.handler)); err != nil {
		return nil, err
	}
	f.loopback = f.base.LoopbackClientConfig
	f.mergeTypes = openapi.NewMergeTypes(f.base.OpenAPIV3Config, f.schemes.External, f.installed.definitions, c.Log)
	if f.client, err = kubernetes.NewForConfig(f.loopback); err != nil {
		return nil, fmt.Errorf("create the loopback client: %w", err)
	}
	if f.definitions, err = apiextensionsclient.NewForConfig(f.loopback); err != nil {
		return nil, fmt.Errorf("create the loopback client of definitions: %w", err)
	}
	if f.objects, err = metadata.NewForConfig(f.loopback); err != nil {
		return nil, fmt.Errorf("create the metadata loopback client: %w", err)
	}
	if f.whole, err = dynamic.NewForConfig(f.loopback); err != nil {
		return nil, fmt.Errorf("create the loopback client of whole objects: %w", err)
	}
	f.faults = faults.NewInjector(c.Faults.Plan, faults.Config{
		Codecs: f.schemes.Codecs, Clock: clock.RealClock{}, Log: c.Log, Patch: patchBy(f.objects), Connections: connections,
	})
	f.informers = informers.NewSharedInformerFactory(f.client, 0)
	f.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(f.client.Discovery()))
	f.aggregation, err = aggregation.New(aggregation.Config{
		Loopback: f.loopback, FrontProxy: c.Authority.FrontProxy(), Discovery: f.base.AggregatedDiscoveryGroupManager, Endpoints: f.endpoints,
		Groups: f.installed.groups, Codecs: f.schemes.Codecs, Now: c.Now, Log: c.Log,
	})
	if err != nil {
		return nil, err
	}
	f.served = discovery.NewServed(c.kubernetes.Minor(), f.installed.definitions, readDefinition(f.definitions), f.aggregation.ResourceOf)
	if f.roles, err = rbac.NewAggregator(f.informers, f.client.RbacV1()); err != nil {
		return nil, err
	}
	return f, nil
}

// webhooks returns how the server reaches webhooks.
func (f *foundation) webhooks() serviceendpoints.Webhooks {
	return serviceendpoints.Webhooks{Endpoints: f.endpoints, Loopback: f.loopback, Aggregated: f.aggregation.Serves}
}

// readDefinition returns a function that reads a CustomResourceDefinition.
func readDefinition(from apiextensionsclient.Interface) func(context.Context, string) (*apiextensionsv1.CustomResourceDefinition, error) {
	return func(ctx context.Context, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
		return from.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, name, metav1.GetOptions{})
	}
}

// patchBy returns a function that patches objects by a client.
func patchBy(objects metadata.Interface) faults.Patch {
	return func(ctx context.Context, resource schema.GroupVersionResource, namespace, name string, patch []byte) error {
		_, err := objects.Resource(resource).Namespace(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "other-writer"})
		return err
	}
}
