// Package apiserver is an API server with Kubernetes' deletion semantics, made to
// run inside another process.
//
// New assembles it, in the order of the functions in this file and its neighbours:
// a generic server configuration (config.go) with serving certificates,
// authentication and authorization (package access), storage (package storage) and
// admission; on it the server of CustomResourceDefinitions; on the same server the
// built-in kinds from their table (package kinds), and discovery for both
// (discovery.go). There is one server and no delegation: custom and built-in
// resources share handlers, OpenAPI and discovery.
//
// Run serves until its context ends. What the control plane's own controllers need
// is Client, a configuration that reaches the server as an administrator.
package apiserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apiserver"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/rest"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/coppice-dev/coppice/internal/apiserver/auth"
	"github.com/coppice-dev/coppice/internal/apiserver/deleteflow"
	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/builtin"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/core"
	"github.com/coppice-dev/coppice/internal/apiserver/routing"
	"github.com/coppice-dev/coppice/internal/apiserver/storage"
)

// When the server stops, requests that are under way are finished, watches are ended
// within watchGrace, and connections may take connectionGrace to close: HTTP/2 keeps
// one open for a second after it has told the client to go away.
const (
	watchGrace      = 100 * time.Millisecond
	connectionGrace = 1200 * time.Millisecond
)

// severalServers stands for any number of servers on one store: then a new
// CustomResourceDefinition is established only when all of them have seen it, 5 s later.
const severalServers = 2

// Config is what a server is made of. Listener, Store, Authority, Version and Now are required.
type Config struct {
	// Listener is where the server serves TLS. Run closes it.
	Listener net.Listener
	// Store holds the objects. The server does not close it.
	Store *storage.Store
	// Authority issues the serving certificate and verifies client certificates.
	Authority *auth.Authority
	// ServingNames are names and IP addresses that clients reach the server by, besides
	// that of Listener: of a load balancer in front of it.
	ServingNames []string
	// Version is what /version reports as gitVersion: a semantic version with a leading v.
	Version string
	// CollectorDisabled is set where no garbage collector runs against this server:
	// a deletion then never adds a finalizer that only a collector removes.
	CollectorDisabled bool
	// ProtectionDisabled is set where nobody runs package protection against this
	// server: then claims and volumes get no finalizers that only it removes.
	ProtectionDisabled bool
	// OwnersUnchecked admits owner references that package owners would refuse.
	OwnersUnchecked bool
	// Services are where services get their addresses from; zero: the usual ranges.
	Services core.ServiceRanges
	// Audit gets a line for every request; none if nil. It is written to concurrently.
	Audit io.Writer
	// Now is the clock of deletions, certificates and printed ages.
	Now func() time.Time
	Log *slog.Logger
}

// Server is an assembled API server. Run may be called once.
type Server struct {
	generic  *genericapiserver.GenericAPIServer
	prepared func(context.Context) error
	client   *rest.Config
	doors    *doors
	swagger  *swagger

	authority *auth.Authority
	ready     chan struct{}
	readyOnce sync.Once
}

// New assembles a server. Nothing is served before Run.
func New(ctx context.Context, c Config) (*Server, error) {
	if c.Listener == nil || c.Store == nil || c.Authority == nil || c.Now == nil {
		return nil, errors.New("apiserver: Listener, Store, Authority and Now are required")
	}
	schemes := builtin.NewSchemes()
	flow := deleteflow.New(deleteflow.Config{Now: c.Now, Resources: builtin.Resources(), CollectorDisabled: c.CollectorDisabled})

	loopback := &loopback{}
	base, err := baseConfig(c, schemes, loopback)
	if err != nil {
		return nil, err
	}
	doors, err := openDoors(base, c)
	if err != nil {
		return nil, err
	}
	shareFairly(base, doors)
	options := restOptions(c, schemes, flow, base)
	if err := admit(ctx, c, base, flow, doors); err != nil {
		return nil, err
	}
	crds, err := customResources(c, base, options, doors.shared)
	if err != nil {
		return nil, err
	}
	loopback.serve(crds.GenericAPIServer.Handler)
	definitions := crds.Informers.Apiextensions().V1().CustomResourceDefinitions().Informer().GetStore()
	doors.kinds.definitions.Store(&definitions)
	s := &Server{generic: crds.GenericAPIServer, client: base.LoopbackClientConfig, doors: doors, authority: c.Authority, ready: make(chan struct{})}
	groups, err := builtin.APIGroups(schemes, registry.Config{RESTOptions: options.builtin, Deleter: flow, Now: c.Now}, c.Services)
	if err != nil {
		return nil, fmt.Errorf("build the registries of the built-in kinds: %w", err)
	}
	core := slices.IndexFunc(groups, func(g *genericapiserver.APIGroupInfo) bool { return g.PrioritizedVersions[0].Group == "" })
	if err := doors.serveTokens(groups[core], c.Authority); err != nil {
		return nil, err
	}
	if err := install(s.generic, append(groups, doors.reviews(schemes, base)...)); err != nil {
		return nil, err
	}
	if err := s.installDiscovery(crds); err != nil {
		return nil, err
	}
	s.swagger = &swagger{
		config:      swaggerConfig(schemes, c.Version),
		routes:      s.generic.Handler.GoRestfulContainer.RegisteredWebServices,
		definitions: definitions,
	}
	if err := s.addHooks(); err != nil { //nolint:contextcheck // a hook is given its own, later
		return nil, err
	}
	if err := s.prepare(base.OpenAPIV3Config); err != nil {
		return nil, err
	}
	s.Handle(SnapshotPath, snapshots{c.Store})
	s.Handle(NewestPath, newest{c.Store})
	return s, nil
}

// install puts API groups on the server. The groups with a name go together, because
// the library builds one set of schemas per installation.
func install(server *genericapiserver.GenericAPIServer, groups []*genericapiserver.APIGroupInfo) error {
	var named []*genericapiserver.APIGroupInfo
	for _, group := range groups {
		if group.PrioritizedVersions[0].Group != "" {
			named = append(named, group)
			continue
		}
		if err := server.InstallLegacyAPIGroup(genericapiserver.DefaultLegacyAPIPrefix, group); err != nil {
			return fmt.Errorf("install the core API group: %w", err)
		}
	}
	if err := server.InstallAPIGroups(named...); err != nil {
		return fmt.Errorf("install the API groups of the built-in kinds: %w", err)
	}
	return nil
}

// prepare does what must come after everything is installed: OpenAPI is built from it.
func (s *Server) prepare(schemas *common.OpenAPIV3Config) error {
	s.generic.ShutdownTimeout = connectionGrace
	prepared := s.generic.PrepareRun()
	if err := s.installSchemas(schemas); err != nil {
		return err
	}
	s.generic.Handler.NonGoRestfulMux.Handle(swaggerPath, s.swagger)
	routes := s.generic.Handler.GoRestfulContainer
	routes.Router(routing.New(routes.RegisteredWebServices()))
	// The library describes custom resources, in v3 too, only if it has this.
	s.generic.StaticOpenAPISpec = &spec.Swagger{}
	s.prepared = func(ctx context.Context) error { return prepared.RunWithContext(ctx) }
	return nil
}

// Client reaches the server as an administrator, from within this process and
// without a socket. It has no limit on the rate of requests.
func (s *Server) Client() *rest.Config { return rest.CopyConfig(s.client) }

// Authority is the certificate, PEM, that clients verify the server by.
func (s *Server) Authority() []byte { return s.authority.Certificate() }

// Ready is closed when the server serves every kind and its own namespaces exist.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Run serves until ctx ends, then finishes the requests that are under way.
func (s *Server) Run(ctx context.Context) error {
	if err := s.prepared(ctx); err != nil {
		return fmt.Errorf("serve the API: %w", err)
	}
	return nil
}

// customResources builds the server of CustomResourceDefinitions and their
// instances, which is also the one that the built-in kinds are installed on.
func customResources(c Config, base *genericapiserver.Config, options options, shared informers.SharedInformerFactory) (*apiextensions.CustomResourceDefinitions, error) {
	servers := 1
	if c.Store.Shared() {
		servers = severalServers
	}
	own := *base
	own.LoopbackClientConfig = rest.CopyConfig(base.LoopbackClientConfig)
	own.LoopbackClientConfig.Wrap(insistent)
	config := &apiextensions.Config{
		GenericConfig: &genericapiserver.RecommendedConfig{Config: own, SharedInformerFactory: shared},
		ExtraConfig: apiextensions.ExtraConfig{
			CRDRESTOptionsGetter: options.custom,
			MasterCount:          servers,
			ServiceResolver:      clusterServices{},
			AuthResolverWrapper:  webhookAuthentication(base.LoopbackClientConfig),
		},
	}
	crds, err := config.Complete().New(genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, fmt.Errorf("build the server of custom resources: %w", err)
	}
	return crds, nil
}
