// Package apiserver is an API server with Kubernetes' deletion semantics, designed to run inside
// another process.
//
// New assembles it: a configuration of k8s.io/apiserver (config.go, storage.go) with
// authentication and authorization (package auth/accesscontrol), priority and fairness, and
// admission (package admissionchain); on it the server of CustomResourceDefinitions from
// apiextensions-apiserver; on the same server the built-in kinds from their table (package
// registry), discovery and OpenAPI for both. There is one server and no delegation: custom
// and built-in resources share handlers, OpenAPI and discovery. Groups of other servers are behind a
// filter (package aggregation). Post-start hooks (hooks.go) create the objects of every cluster.
//
// Run serves until its context ends. Components in the same process reach the server by the
// client configurations of clients.go.
package apiserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apiserver"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	restregistry "k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/apimachinery/lease"

	"github.com/coppice-dev/coppice/internal/apiserver/admissionchain"
	"github.com/coppice-dev/coppice/internal/apiserver/aggregation"
	"github.com/coppice-dev/coppice/internal/apiserver/auth"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/accesscontrol"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/external"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/ownerreferences"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/rbacauthorizer"
	"github.com/coppice-dev/coppice/internal/apiserver/autoregister"
	"github.com/coppice-dev/coppice/internal/apiserver/deleteflow"
	"github.com/coppice-dev/coppice/internal/apiserver/discovery"
	"github.com/coppice-dev/coppice/internal/apiserver/establishing"
	"github.com/coppice-dev/coppice/internal/apiserver/eviction"
	"github.com/coppice-dev/coppice/internal/apiserver/kubernetesservice"
	"github.com/coppice-dev/coppice/internal/apiserver/loopback"
	"github.com/coppice-dev/coppice/internal/apiserver/nodeproxy"
	"github.com/coppice-dev/coppice/internal/apiserver/openapi/mergetypes"
	"github.com/coppice-dev/coppice/internal/apiserver/openapi/serving"
	"github.com/coppice-dev/coppice/internal/apiserver/podlogs"
	"github.com/coppice-dev/coppice/internal/apiserver/podproxy"
	"github.com/coppice-dev/coppice/internal/apiserver/podstreams"
	"github.com/coppice-dev/coppice/internal/apiserver/priorityfairness"
	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/builtin"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/core"
	"github.com/coppice-dev/coppice/internal/apiserver/serviceaddresses"
	"github.com/coppice-dev/coppice/internal/apiserver/serviceendpoints"
	"github.com/coppice-dev/coppice/internal/apiserver/storage"
	"github.com/coppice-dev/coppice/internal/apiserver/storageendpoints"
	"github.com/coppice-dev/coppice/internal/apiserver/storemetadata"
	"github.com/coppice-dev/coppice/internal/apiserver/systemobjects"
	"github.com/coppice-dev/coppice/internal/apiserver/webhooks"
)

// Config configures a Server. Listener, Store, Authority, Version and Now are required.
type Config struct {
	// Listener is where the server serves TLS. Run closes it.
	Listener net.Listener
	// Store holds the objects. The server does not close it.
	Store *storage.Store
	// Authority issues the serving certificate and verifies client certificates.
	Authority *auth.Authority
	// ServingNames are additional names and IP addresses in the serving certificate besides the address of
	// Listener, such as the name of a load balancer.
	ServingNames []string
	// AdvertiseAddress is the address that the Endpoints of the service default/kubernetes contain for this
	// server. Default: the address of Listener, or, if that is unspecified or loopback, the address of the
	// machine's default route.
	AdvertiseAddress net.IP
	// Version is the gitVersion in /version: a semantic version with a leading v.
	Version string
	// Features are the controllers that run against this server, and the checks that it makes.
	Features Features
	// Companions returns the current companions of the server, which change when another process becomes
	// the leader. It must be safe for concurrent use. Default: none.
	Companions func() Companions
	// DisabledPlugins are names of additional admission plug-ins to disable, from admissionchain.Optional.
	DisabledPlugins []string
	// AdmissionConfig is the path of the AdmissionConfiguration; none if empty.
	AdmissionConfig string
	// External is the authentication and authorization that files configure.
	External external.Config
	// MaxRequests and MaxWrites limit the concurrent reads and the concurrent writes; 0: the defaults.
	MaxRequests, MaxWrites int
	// ConnectionGrace is how long connections may take to close when the server stops, after the requests
	// in flight have finished. Default: 1.2 s, in which HTTP/2 clients close their connections.
	ConnectionGrace time.Duration
	// Services are the ranges of cluster IPs and node ports; zero: the defaults.
	Services core.ServiceRanges
	// Audit receives a line for every request; nil disables it. It must be safe for concurrent
	// use.
	Audit io.Writer
	// AuditPolicy is the path of the audit policy. Default: metadata of all requests except health checks.
	AuditPolicy string
	// Now is the clock for deletions, certificates and printed ages.
	Now func() time.Time
	Log *slog.Logger // nil: nothing is logged
}

// Features are the controllers that run against a server, and the checks that it makes.
type Features = admissionchain.Features

// AllFeatures returns the features of a server with all controllers.
func AllFeatures() Features { return admissionchain.AllFeatures() }

// Server is an assembled API server. Run may be called once.
type Server struct {
	generic  *genericapiserver.GenericAPIServer
	prepared func(context.Context) error
	log      *slog.Logger

	authority  *auth.Authority
	access     *accesscontrol.AccessControl
	loopback   *rest.Config         // with the rights of an administrator
	client     kubernetes.Interface // by loopback
	objects    metadata.Interface   // by loopback
	informers  informers.SharedInformerFactory
	aggregator *rbacauthorizer.Aggregator
	mapper     *restmapper.DeferredDiscoveryRESTMapper // for admission; reset when CustomResourceDefinitions change
	served     *discovery.Served
	// definitions uses loopback, too.
	definitions apiextensionsclient.Interface
	mergeTypes  *mergetypes.Types
	metadata    *storemetadata.Source
	// establisher establishes definitions; nil on a store that several servers share.
	establisher *establishing.Establisher
	publisher   *kubernetesservice.Publisher
	// endpoints resolves the Services of webhooks and aggregated servers.
	endpoints serviceendpoints.Resolver
	identity  lease.Controller
	// aggregation serves the groups of other servers; registrar maintains the APIServices of this server's
	// own groups.
	aggregation *aggregation.Aggregator
	registrar   *autoregister.Registrar
	logs        *podlogs.Endpoint
	streams     *podstreams.Streams
	agents      *nodeproxy.Endpoint
	components  *core.ComponentStatuses
	companions  companions

	gate      *gate
	ready     chan struct{}
	readyOnce sync.Once
}

// complete validates the required fields and sets the defaults of the others.
func (c *Config) complete() error {
	if c.Listener == nil || c.Store == nil || c.Authority == nil || c.Now == nil {
		return errors.New("apiserver: Listener, Store, Authority and Now are required")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Companions == nil {
		c.Companions = func() Companions { return Companions{} }
	}
	c.Services = cmp.Or(c.Services, core.DefaultServiceRanges())
	return nil
}

// New assembles a server. Nothing is served before Run.
func New(ctx context.Context, c Config) (*Server, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	schemes := builtin.NewSchemes()
	own := &loopback.Transport{}
	base, err := baseConfig(c, schemes, own)
	if err != nil {
		return nil, err
	}
	s := &Server{log: c.Log, companions: c.Companions, authority: c.Authority, loopback: base.LoopbackClientConfig, served: discovery.NewServed(), establisher: establishing.New(c.Now), gate: newGate(), ready: make(chan struct{})}
	s.mergeTypes = mergetypes.New(base.OpenAPIV3Config, schemes.External, c.Log)
	if err := s.connect(c, base, schemes); err != nil {
		return nil, err
	}
	flow := deleteflow.New(deleteflow.Config{Now: c.Now, Resources: builtin.Resources(), Collector: c.Features.Collector, Left: s.left, Asked: s.companions.requested, Stored: s.readStored})
	if err := s.secure(ctx, c, base, flow); err != nil {
		return nil, err
	}
	s.metadata = storemetadata.New(storemetadata.Config{
		Follower: c.Store.Follower(), Authorizer: base.Authorization.Authorizer, Builtin: s.served.IsBuiltin,
	})
	options := restOptions(c, schemes, flow, s.establisher, base)
	crds, err := customResources(c, base, options, s.informers, s.webhooks())
	if err != nil {
		return nil, err
	}
	s.generic = crds.GenericAPIServer
	own.SetHandler(s.generic.Handler)
	definitions := crds.Informers.Apiextensions().V1().CustomResourceDefinitions().Informer()
	if err := s.setDefinitions(c, definitions); err != nil {
		return nil, err
	}
	c.Services.Objects = serviceaddresses.New(s.informers.Networking().V1())
	groups, err := builtin.APIGroups(schemes, registry.Config{RESTOptions: options.builtin, Deleter: flow, Now: c.Now}, c.Services)
	if err != nil {
		return nil, fmt.Errorf("build the registries of the built-in kinds: %w", err)
	}
	if err := s.install(c, groups, s.access.ReviewGroups(schemes, base)); err != nil {
		return nil, err
	}
	if err := s.aggregate(ctx, c, groups, definitions); err != nil {
		return nil, err
	}
	if s.publisher, err = newPublisher(ctx, c, s.client); err != nil {
		return nil, err
	}
	s.identity = systemobjects.NewIdentity(s.client, base.APIServerID)
	if err := s.addHooks(c.Services, c.Now, schemes.Hub.Default); err != nil { //nolint:contextcheck // a hook is given its own, later
		return nil, err
	}
	s.prepare(c, base, schemes, definitions.GetStore())
	return s, nil
}

// setDefinitions passes the informer of CustomResourceDefinitions to the parts that need it.
func (s *Server) setDefinitions(c Config, definitions cache.SharedIndexInformer) error {
	s.served.SetDefinitions(definitions.GetStore(), s.readDefinition)
	s.mergeTypes.SetDefinitions(definitions.GetStore())
	if c.Store.Shared() {
		return nil
	}
	s.establisher.SetDefinitions(definitions.GetStore(), definitions.HasSynced)
	if err := definitions.SetTransform(s.establisher.Transform); err != nil {
		return fmt.Errorf("watch the definitions: %w", err)
	}
	return nil
}

// prepare adds the paths that are not resources, and OpenAPI, which needs all resources to be installed.
func (s *Server) prepare(c Config, base *genericapiserver.Config, schemes registry.Schemes, definitions cache.Store) {
	s.generic.ShutdownTimeout = cmp.Or(c.ConnectionGrace, connectionGrace)
	s.prepared = s.generic.PrepareRun().RunWithContext
	s.Handle(storageendpoints.SnapshotPath, storageendpoints.Snapshot{Store: c.Store})
	s.Handle(storageendpoints.NewestPath, storageendpoints.Newest{Store: c.Store})
	issuer, err := s.access.IssuerDiscovery(s.generic.ExternalAddress)
	if err != nil { // like upstream: tokens are issued nevertheless
		c.Log.Warn("the issuer of service account tokens cannot be discovered", "reason", err)
	}
	for path, handler := range issuer {
		s.Handle(path, handler)
	}
	serving.InstallV2(s.generic, schemes.External, c.Version, definitions, s.aggregation.OpenAPIV2)
	serving.InstallV3(s.generic, base.OpenAPIV3Config, c.Version, definitions)
	// The groups were installed with these definitions. Later descriptions of types create their own.
	base.OpenAPIV3Config.Definitions = nil
}

// connect creates the clients, informers and controllers that work through the loopback.
func (s *Server) connect(c Config, base *genericapiserver.Config, schemes registry.Schemes) error {
	var err error
	if s.client, err = kubernetes.NewForConfig(s.loopback); err != nil {
		return fmt.Errorf("create the loopback client: %w", err)
	}
	if s.definitions, err = apiextensionsclient.NewForConfig(s.loopback); err != nil {
		return fmt.Errorf("create the loopback client of definitions: %w", err)
	}
	if s.objects, err = metadata.NewForConfig(s.loopback); err != nil {
		return fmt.Errorf("create the metadata loopback client: %w", err)
	}
	s.informers = informers.NewSharedInformerFactory(s.client, 0)
	s.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(s.client.Discovery()))
	s.aggregation, err = aggregation.New(aggregation.Config{
		Loopback: s.loopback, FrontProxy: c.Authority.FrontProxy(), Discovery: base.AggregatedDiscoveryGroupManager, Endpoints: &s.endpoints,
		Codecs: schemes.Codecs, Now: c.Now, Log: c.Log,
	})
	if err != nil {
		return err
	}
	s.aggregator, err = rbacauthorizer.NewAggregator(s.informers, s.client.RbacV1())
	return err
}

// webhooks returns how the server reaches webhooks.
func (s *Server) webhooks() webhooks.Config {
	return webhooks.Config{Endpoints: &s.endpoints, Loopback: s.loopback, Aggregated: s.aggregation.Serves}
}

// readDefinition reads a CustomResourceDefinition.
func (s *Server) readDefinition(ctx context.Context, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	return s.definitions.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, name, metav1.GetOptions{})
}

// secure sets up authentication, authorization, priority and fairness, and admission.
func (s *Server) secure(ctx context.Context, c Config, base *genericapiserver.Config, flow *deleteflow.Flow) error {
	var err error
	if s.access, err = accesscontrol.Apply(base, accesscontrol.Config{
		Authority: c.Authority, External: c.External, Client: s.client, Informers: s.informers, Now: c.Now,
	}); err != nil {
		return err
	}
	base.BuildHandlerChainFunc = handlerChain(s, flow)
	priorityfairness.Apply(base, s.informers, s.client)
	return admissionchain.Apply(ctx, base, admissionchain.Config{
		Client: s.client, Informers: s.informers, Mapper: s.mapper, Flow: flow,
		Restrictions: s.access.Restrictions, Outlived: s.checkOutlived,
		Served: s.served.ResourceOf, OwnerExists: ownerreferences.Lookup{Mapper: s.mapper, Metadata: s.objects}.Exists, Backlog: s.companions.backlog,
		MergeTypes: s.mergeTypes, Webhooks: s.webhooks(),
		Features: c.Features, Disabled: c.DisabledPlugins, File: c.AdmissionConfig,
	})
}

// install adds the API groups to the server. The groups with a name are installed together, because
// k8s.io/apiserver builds one set of schemas for each installation.
func (s *Server) install(c Config, builtin, reviews []*genericapiserver.APIGroupInfo) error {
	of := func(group string) int {
		return slices.IndexFunc(builtin, func(g *genericapiserver.APIGroupInfo) bool { return g.PrioritizedVersions[0].Group == group })
	}
	unnamed := of("")
	if err := s.extendCore(c, builtin[unnamed], builtin[of(policyv1.GroupName)]); err != nil {
		return err
	}
	if err := s.access.GuardRoles(builtin[of(rbacv1.GroupName)].VersionedResourcesStorageMap["v1"]); err != nil {
		return err
	}
	if err := s.generic.InstallLegacyAPIGroup(genericapiserver.DefaultLegacyAPIPrefix, builtin[unnamed]); err != nil {
		return fmt.Errorf("install the core API group: %w", err)
	}
	named := slices.Concat(builtin[:unnamed], builtin[unnamed+1:], reviews)
	if err := s.generic.InstallAPIGroups(named...); err != nil {
		return fmt.Errorf("install the API groups of the built-in kinds: %w", err)
	}
	for _, group := range slices.Concat(builtin, reviews) {
		group.StaticOpenAPISpec = nil // 8 MB of schemas, which nobody reads again
	}
	shareRoutes(s.generic.Handler.GoRestfulContainer.RegisteredWebServices())
	return nil
}

// extendCore adds resources of the core group that are not in its table: pods/log, pods/exec, pods/attach,
// pods/portforward, the proxies of pods, services and nodes, pods/eviction, serviceaccounts/token, bindings
// and componentstatuses.
func (s *Server) extendCore(c Config, legacy, policy *genericapiserver.APIGroupInfo) error {
	storages := legacy.VersionedResourcesStorageMap["v1"]
	if err := s.access.UseRegistries(storages); err != nil {
		return err
	}
	pods, podsOK := storages["pods"].(restregistry.Getter)
	nodes, nodesOK := storages["nodes"].(restregistry.Getter)
	binding, bindingOK := storages["pods/binding"].(restregistry.NamedCreater)
	if !podsOK || !nodesOK || !bindingOK {
		return errors.New("the registries of pods and nodes lack a method")
	}
	agents := auth.NewLogReader(s.authority)
	s.logs = podlogs.NewEndpoint(pods, podlogs.Agents{Nodes: nodes, TLS: agents.TLS}.Logs)
	storages["pods/log"] = s.logs
	s.streams = podstreams.New(podstreams.Config{Pods: pods, Nodes: nodes, TLS: agents.TLS, Authorizer: s.access.Authorizer})
	s.streams.AddTo(storages)
	s.agents = nodeproxy.New(nodeproxy.Config{Nodes: nodes, TLS: agents.TLS, Authorizer: s.access.Authorizer})
	storages["nodes/proxy"] = s.agents
	services, servicesOK := storages["services"].(restregistry.Getter)
	endpoints, endpointsOK := storages["endpoints"].(restregistry.Getter)
	if !servicesOK || !endpointsOK {
		return errors.New("the registries of services and endpoints lack a method")
	}
	podproxy.Registries{Pods: pods, Nodes: nodes, Services: services, Endpoints: endpoints}.AddTo(storages)
	evictions, err := eviction.FromStorages(storages, policy.VersionedResourcesStorageMap["v1"])
	if err != nil {
		return err
	}
	storages["pods/eviction"] = eviction.NewEndpoint(evictions, c.Now)
	storages["bindings"] = core.NewBindings(binding)
	s.components = core.NewComponentStatuses(map[string]func(context.Context) error{"etcd-0": c.Store.Healthy}, c.Now)
	storages["componentstatuses"] = s.components
	return nil
}

// customResources builds the server of CustomResourceDefinitions and their instances. The built-in kinds
// are installed on the same server.
func customResources(c Config, base *genericapiserver.Config, options options, shared informers.SharedInformerFactory, hooks webhooks.Config) (*apiextensions.CustomResourceDefinitions, error) {
	servers := 1
	if c.Store.Shared() {
		servers = severalServers
	}
	own := *base
	own.LoopbackClientConfig = rest.CopyConfig(base.LoopbackClientConfig)
	own.LoopbackClientConfig.Wrap(loopback.RetryStatusConflicts)
	config := &apiextensions.Config{
		GenericConfig: &genericapiserver.RecommendedConfig{Config: own, SharedInformerFactory: shared},
		ExtraConfig: apiextensions.ExtraConfig{
			CRDRESTOptionsGetter: options.custom,
			MasterCount:          servers,
			ServiceResolver:      webhooks.ServiceResolver(),
			AuthResolverWrapper:  webhooks.Authentication(hooks),
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

// Handle serves a path that is not a resource. Its users are authenticated and need RBAC permission for the path.
// Handle may be called at any time.
func (s *Server) Handle(path string, handler http.Handler) {
	s.generic.Handler.NonGoRestfulMux.Handle(path, handler)
}

// HandlePrefix is like Handle, for all paths below a prefix, which ends with a slash.
func (s *Server) HandlePrefix(prefix string, handler http.Handler) {
	s.generic.Handler.NonGoRestfulMux.HandlePrefix(prefix, handler)
}

// Authorizer returns the authorizer for handlers that show objects in other ways than the API does (Handle): it
// lets restricted users see nothing there.
func (s *Server) Authorizer() authorizer.Authorizer {
	return s.access.Restrictions.Unrestricted(s.access.Authorizer)
}

// Authority returns the certificate, in PEM, with which clients verify the server.
func (s *Server) Authority() []byte { return s.authority.Certificate() }

// Signer issues certificates that the server accepts from clients.
func (s *Server) Signer() *auth.Authority { return s.authority }

// Ready is closed when the server serves every kind and its own namespaces exist.
func (s *Server) Ready() <-chan struct{} { return s.ready }

func (s *Server) isReady() bool {
	select {
	case <-s.ready:
		return true
	default:
		return false
	}
}
