// Package apiserver is an API server with Kubernetes' deletion semantics, designed to run inside
// another process.
//
// New assembles it in stages, each of which returns a value that the next ones take:
//
//	connect  connect.go  a configuration of k8s.io/apiserver (config.go), clients and informers
//	secure   secure.go   authentication and authorization (package auth/accesscontrol), the delete flow,
//	                     priority and fairness, admission (package admissionchain)
//	install  install.go  on the storage (storage.go) the server of CustomResourceDefinitions from
//	                     apiextensions-apiserver; on the same server the built-in kinds from their table
//	                     (package registry)
//	register aggregate.go, publish.go  discovery, the groups of other servers, the server's own addresses
//	serve    serve.go, hooks.go  other paths, OpenAPI, and the hooks that create the objects of every cluster
//
// Some parts are made before the API is installed, and use it when requests come: they find it in one value
// (installed.go).
//
// There is one server and no delegation: custom and built-in resources share handlers, OpenAPI and discovery.
// Groups of other servers are behind a filter (package aggregation).
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
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/internal/apiserver/admissionchain"
	"github.com/coppice-dev/coppice/internal/apiserver/auth"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/accesscontrol"
	"github.com/coppice-dev/coppice/internal/apiserver/etcd"
	"github.com/coppice-dev/coppice/internal/apiserver/faults"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/builtin"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/core"
	"github.com/coppice-dev/coppice/internal/apiserver/storemetadata"
	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// Config configures a Server. Listener, Store, Authority, Version and Now are required.
type Config struct {
	// Listener is where the server serves TLS. Run closes it.
	Listener net.Listener
	// Store holds the objects. The server does not close it.
	Store *etcd.Store
	// Authority issues the serving certificate and verifies client certificates.
	Authority *auth.Authority
	// ServingNames are additional names and IP addresses in the serving certificate besides the address of
	// Listener, such as the name of a load balancer.
	ServingNames []string
	// AdvertiseAddress is the address that the Endpoints of the service default/kubernetes contain for this
	// server. Default: the address of Listener, or, if that is unspecified or loopback, the address of the
	// machine's default route.
	AdvertiseAddress net.IP
	// Version is the gitVersion in /version: a semantic version with a leading v. Of an older minor than that of the
	// libraries, only the resources of that minor are served.
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
	External accesscontrol.External
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
	// Confirm are the deletions that need no confirmation (R32). Default: no deletion needs one.
	Confirm protection.Limits
	// Protect are the modes of protection of objects without a label (R28).
	Protect protection.Defaults
	// Faults are faults that kube-apiserver may have, too, for tests of clients.
	Faults Faults
	// Now is the clock for deletions, certificates and printed ages.
	Now func() time.Time
	Log *slog.Logger // nil: nothing is logged
}

// Faults configure the faults of a server.
type Faults struct {
	// Plan is the first plan: what a client of the server meets from the beginning.
	Plan faults.Plan
	// Refused is why administrators may not replace the plan over HTTP; empty: they may.
	Refused string
}

// Features are the controllers that run against a server, and the checks that it makes.
type Features = admissionchain.Features

// AllFeatures returns the features of a server with all controllers.
func AllFeatures() Features { return admissionchain.AllFeatures() }

// complete validates the required fields and sets the defaults of the others.
func (c Config) complete() (completedConfig, error) {
	if c.Listener == nil || c.Store == nil || c.Authority == nil || c.Now == nil {
		return completedConfig{}, errors.New("apiserver: Listener, Store, Authority and Now are required")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Companions == nil {
		c.Companions = func() Companions { return Companions{} }
	}
	version, err := utilversion.ParseSemantic(c.Version)
	if err != nil {
		return completedConfig{}, fmt.Errorf("version %q: %w", c.Version, err)
	}
	c.Services = cmp.Or(c.Services, core.DefaultServiceRanges())
	return completedConfig{c, version}, nil
}

// completedConfig is a valid configuration with its defaults set. Only complete makes it.
type completedConfig struct {
	Config
	kubernetes *utilversion.Version // Version, parsed
}

// Server is an assembled API server. Run may be called once.
type Server struct {
	generic  *genericapiserver.GenericAPIServer
	prepared func(context.Context) error

	authority *auth.Authority
	access    *accesscontrol.AccessControl
	loopback  *rest.Config // with the rights of an administrator
	metadata  *storemetadata.Source
	start     *start

	definitions cache.SharedIndexInformer // of CustomResourceDefinitions
	serves      func(version schema.GroupVersion, path string) bool
	caches      caches
	faults      *faults.Injector
}

// New assembles a server. Nothing is served before Run.
func New(ctx context.Context, config Config) (*Server, error) {
	c, err := config.complete()
	if err != nil {
		return nil, err
	}
	foundation, err := connect(c)
	if err != nil {
		return nil, err
	}
	security, err := secure(ctx, c, foundation)
	if err != nil {
		return nil, err
	}
	apis, err := install(c, foundation, security)
	if err != nil {
		return nil, err
	}
	registration, err := register(ctx, c, foundation, apis)
	if err != nil {
		return nil, err
	}
	prepared, err := serve(c, foundation, security, apis, registration) //nolint:contextcheck // a hook is given its own, later
	if err != nil {
		return nil, err
	}
	return &Server{
		generic: apis.generic, prepared: prepared, authority: c.Authority, access: security.access,
		loopback: foundation.loopback, metadata: security.metadata, start: foundation.start, definitions: apis.definitions,
		serves: builtin.Served(c.kubernetes.Minor()), caches: foundation.caches(apis), faults: foundation.faults,
	}, nil
}

// Handle serves a path that is not a resource. Its users are authenticated and need RBAC permission for the path.
// Handle may be called at any time.
func (s *Server) Handle(path string, handler http.Handler) {
	s.generic.Handler.NonGoRestfulMux.Handle(path, sameOrigin(handler))
}

// HandlePrefix is like Handle, for all paths below a prefix, which ends with a slash.
func (s *Server) HandlePrefix(prefix string, handler http.Handler) {
	s.generic.Handler.NonGoRestfulMux.HandlePrefix(prefix, sameOrigin(handler))
}

// Definitions returns the server's informer of CustomResourceDefinitions, which nobody changes.
func (s *Server) Definitions() cache.SharedIndexInformer { return s.definitions }

// Serves reports whether a built-in resource or subresource is served in the minor of Kubernetes that Config.Version names.
func (s *Server) Serves(version schema.GroupVersion, path string) bool {
	return s.serves(version, path)
}

// Authorizer returns the authorizer for handlers that show objects in other ways than the API does (Handle): it
// lets restricted users see nothing there.
func (s *Server) Authorizer() authorizer.Authorizer {
	return unrestricted(s.access)
}

// Authority returns the certificate, in PEM, with which clients verify the server.
func (s *Server) Authority() []byte { return s.authority.Certificate() }

// Signer issues certificates that the server accepts from clients.
func (s *Server) Signer() *auth.Authority { return s.authority }

// Ready is closed when the server serves every kind and its own namespaces exist.
func (s *Server) Ready() <-chan struct{} { return s.start.ready }
