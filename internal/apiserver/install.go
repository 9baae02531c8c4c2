package apiserver

import (
	"fmt"
	"slices"

	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiserver/pkg/registry/generic"
	restregistry "k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/internal/apiserver/auth"
	"github.com/coppice-dev/coppice/internal/apiserver/eviction"
	"github.com/coppice-dev/coppice/internal/apiserver/kubelet"
	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/builtin"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/core"
	"github.com/coppice-dev/coppice/internal/apiserver/serviceendpoints"
	"github.com/coppice-dev/coppice/internal/apiserver/storage"
)

// apis is the generic server with the APIs that it serves.
type apis struct {
	generic     *genericapiserver.GenericAPIServer
	definitions cache.SharedIndexInformer // of CustomResourceDefinitions
	builtin     []*genericapiserver.APIGroupInfo
	storages    *storage.Stack
}

// install builds the server of CustomResourceDefinitions, and adds the built-in kinds to it.
func install(c completedConfig, f *foundation, s *security) (*apis, error) {
	options := restOptions(c, f, s.flow)
	crds, err := customResources(c, f, options.custom)
	if err != nil {
		return nil, err
	}
	definitions := crds.Informers.Apiextensions().V1().CustomResourceDefinitions().Informer()
	if !c.Store.Shared() {
		if err := definitions.SetTransform(f.establisher.Transform); err != nil {
			return nil, fmt.Errorf("watch the definitions: %w", err)
		}
	}
	services := c.Services
	services.Objects = newServiceAddresses(f.informers.Networking().V1())
	groups, err := builtin.APIGroups(f.schemes, registry.Config{
		RESTOptions: options.builtin, Deleter: s.flow, Now: c.Now, Serves: builtin.Served(c.kubernetes.Minor()),
	}, services)
	if err != nil {
		return nil, fmt.Errorf("build the registries of the built-in kinds: %w", err)
	}
	if err := installGroups(c, s, crds.GenericAPIServer, groups, s.access.ReviewGroups(f.schemes, f.base)); err != nil {
		return nil, err
	}
	return &apis{generic: crds.GenericAPIServer, definitions: definitions, builtin: groups, storages: options.stack}, nil
}

// customResources builds the server of CustomResourceDefinitions and their instances. The built-in kinds
// are installed on the same server.
func customResources(c completedConfig, f *foundation, custom generic.RESTOptionsGetter) (*apiextensions.CustomResourceDefinitions, error) {
	servers := 1
	if c.Store.Shared() {
		servers = severalServers
	}
	own := *f.base
	own.LoopbackClientConfig = rest.CopyConfig(f.base.LoopbackClientConfig)
	own.LoopbackClientConfig.Wrap(retryStatusConflicts)
	config := &apiextensions.Config{
		GenericConfig: &genericapiserver.RecommendedConfig{Config: own, SharedInformerFactory: f.informers},
		ExtraConfig: apiextensions.ExtraConfig{
			CRDRESTOptionsGetter: custom,
			MasterCount:          servers,
			ServiceResolver:      serviceendpoints.ServiceResolver(),
			AuthResolverWrapper:  f.webhooks().Authentication(),
		},
	}
	crds, err := config.Complete().New(genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, fmt.Errorf("build the server of custom resources: %w", err)
	}
	return crds, nil
}

// severalServers tells apiextensions-apiserver that several servers share the store: it then establishes a
// CustomResourceDefinition only after 5 s, when all of them have observed it.
const severalServers = 2

// installGroups adds the API groups to the server. The groups with a name are installed together, because
// k8s.io/apiserver builds one set of schemas for each installation.
func installGroups(c completedConfig, s *security, generic *genericapiserver.GenericAPIServer, builtin, reviews []*genericapiserver.APIGroupInfo) error {
	of := func(group string) int {
		return slices.IndexFunc(builtin, func(g *genericapiserver.APIGroupInfo) bool { return g.PrioritizedVersions[0].Group == group })
	}
	unnamed := of("")
	if err := extendCore(c, s, builtin[unnamed], builtin[of(policyv1.GroupName)]); err != nil {
		return err
	}
	if err := s.access.GuardRoles(builtin[of(rbacv1.GroupName)].VersionedResourcesStorageMap["v1"]); err != nil {
		return err
	}
	if err := generic.InstallLegacyAPIGroup(genericapiserver.DefaultLegacyAPIPrefix, builtin[unnamed]); err != nil {
		return fmt.Errorf("install the core API group: %w", err)
	}
	named := slices.Concat(builtin[:unnamed], builtin[unnamed+1:], reviews)
	if err := generic.InstallAPIGroups(named...); err != nil {
		return fmt.Errorf("install the API groups of the built-in kinds: %w", err)
	}
	for _, group := range slices.Concat(builtin, reviews) {
		group.StaticOpenAPISpec = nil // 8 MB of schemas, which nobody reads again
	}
	shareRoutes(generic.Handler.GoRestfulContainer.RegisteredWebServices())
	return nil
}

// extendCore adds resources of the core group that are not in its table: pods/log, pods/exec, pods/attach,
// pods/portforward, the proxies of pods, services and nodes, pods/eviction, serviceaccounts/token, bindings
// and componentstatuses.
func extendCore(c completedConfig, s *security, legacy, policy *genericapiserver.APIGroupInfo) error {
	storages := legacy.VersionedResourcesStorageMap["v1"]
	if err := s.access.AddTokens(storages); err != nil {
		return err
	}
	err := kubelet.AddTo(storages, kubelet.Config{Local: s.companions.nodes, TLS: auth.NewLogReader(c.Authority).TLS, Authorizer: s.access.Authorizer})
	if err != nil {
		return err
	}
	evictions, err := eviction.FromStorages(storages, policy.VersionedResourcesStorageMap["v1"])
	if err != nil {
		return err
	}
	evictions.Protect, evictions.Confirm = c.Protect, c.Confirm
	storages["pods/eviction"] = eviction.NewEndpoint(evictions, c.Now)
	binding, ok := storages["pods/binding"].(restregistry.NamedCreater)
	if !ok {
		return fmt.Errorf("bindings need to create pods/binding, whose registry is a %T", storages["pods/binding"])
	}
	storages["bindings"] = core.NewBindings(binding)
	storages["componentstatuses"] = core.NewComponentStatuses(s.companions.components(c.Store), c.Now)
	return nil
}
