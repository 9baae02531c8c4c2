// Package aggregation implements APIServices: it serves the group versions that they assign to other API servers, and
// maintains an APIService for each of the server's own (registration.go).
//
//	request ──▶ Filter ──▶ the server's own handlers
//	              └──────▶ proxy ──▶ endpoint of the Service, with the user in headers
//
//	APIServices, Services, EndpointSlices ──▶ Reconcile ──▶ one request per check, for the discovery
//	                                                        of the group version
//	        ──▶ routes, aggregated and unaggregated discovery, the condition Available
//
// The types, the client and the helpers for conditions come from k8s.io/kube-aggregator. Its server is not
// used: it is a second generic server in front of the first, keeps every Service and EndpointSlice in
// memory, downloads the OpenAPI documents of all servers at the start, and requests three documents from
// each aggregated server although its discovery document is enough. Here only an informer of APIServices
// runs until one of them names a Service.
//
// The controllers (controller.go, registration.go) decide with plan.go, which is pure.
package aggregation

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	discoveryendpoint "k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	apiregistrationclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	informers "k8s.io/kube-aggregator/pkg/client/informers/externalversions/apiregistration/v1"

	"github.com/coppice-dev/coppice/internal/apiserver/auth"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/ownerreferences"
	"github.com/coppice-dev/coppice/internal/apiserver/discovery"
	"github.com/coppice-dev/coppice/internal/apiserver/serviceendpoints"
	"github.com/coppice-dev/coppice/internal/controller"
)

// The user of the control plane's own requests to aggregated servers, as in kube-apiserver.
const (
	aggregatorUser  = "system:kube-aggregator"
	aggregatorGroup = user.SystemPrivilegedGroup
)

// Config configures an Aggregator. All fields are required.
type Config struct {
	// Loopback reaches the server itself.
	Loopback *rest.Config
	// FrontProxy provides the client certificate for aggregated servers.
	FrontProxy *auth.FrontProxy
	// Discovery is the server's aggregated discovery.
	Discovery discoveryendpoint.ResourceManager
	// Endpoints resolves the Services of APIServices.
	Endpoints *serviceendpoints.Resolver
	// Groups returns the list of API groups. It is not called before the server's own API is installed.
	Groups func() *discovery.Groups
	// Codecs encode API groups.
	Codecs runtime.NegotiatedSerializer
	Now    func() time.Time
	Log    *slog.Logger
}

// Aggregator is the part of a server that connects to other servers.
type Aggregator struct {
	config   Config
	client   apiregistrationclient.APIServicesGetter
	metadata metadata.Interface
	services cache.SharedIndexInformer // of APIServices
	discover discoveryendpoint.ResourceManager
	routes   routes
	creating sync.Mutex // held while backends are created
	requests chan controller.Request
	watching sync.Once

	certificates certificates
}

// New returns an Aggregator that does not know any server yet.
func New(c Config) (*Aggregator, error) {
	all, err := clientset.NewForConfig(c.Loopback)
	if err != nil {
		return nil, fmt.Errorf("create the client of APIServices: %w", err)
	}
	objects, err := metadata.NewForConfig(c.Loopback)
	if err != nil {
		return nil, fmt.Errorf("create the metadata client of aggregation: %w", err)
	}
	return &Aggregator{
		config: c, client: all.ApiregistrationV1(), metadata: objects,
		services:     informers.NewAPIServiceInformer(all, 0, cache.Indexers{}),
		discover:     c.Discovery.WithSource(discoveryendpoint.AggregatorSource),
		requests:     make(chan controller.Request),
		certificates: certificates{proxy: c.FrontProxy},
	}, nil
}

// Listed returns the group versions of other servers, for the unaggregated list of groups.
func (a *Aggregator) Listed() []discovery.Remote { return a.routes.listed() }

// Services returns the informer of APIServices. Run runs it.
func (a *Aggregator) Services() cache.SharedIndexInformer { return a.services }

// Serves reports whether another server serves a group version.
func (a *Aggregator) Serves(version schema.GroupVersion) bool { return a.routes.all()[version] != nil }

// Client returns the client of APIServices.
func (a *Aggregator) Client() apiregistrationclient.APIServicesGetter { return a.client }

// ResourceOf implements ownerreferences.Served for the kinds of aggregated servers, including unavailable
// ones.
func (a *Aggregator) ResourceOf(kind schema.GroupKind) (ownerreferences.ServedResource, bool) {
	for version, b := range a.routes.all() {
		discovered := b.discovered.Load()
		if version.Group != kind.Group || discovered == nil {
			continue
		}
		for _, r := range discovered.Resources {
			if r.ResponseKind != nil && r.ResponseKind.Kind == kind.Kind {
				return ownerreferences.ServedResource{Resource: r.Resource, Namespaced: r.Scope == namespaced}, true
			}
		}
	}
	return ownerreferences.ServedResource{}, false
}

// certificates loads the front proxy's certificate, and reloads it when it has been replaced.
type certificates struct {
	proxy *auth.FrontProxy

	mu     sync.Mutex
	due    time.Time        // guarded by mu: identifies the loaded certificate
	loaded *tls.Certificate // guarded by mu
}

func (c *certificates) current() (*tls.Certificate, error) {
	pair, err := c.proxy.Current()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.loaded != nil && c.due.Equal(pair.Due) {
		return c.loaded, nil
	}
	certificate, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		return nil, fmt.Errorf("load the certificate of %s: %w", auth.FrontProxyUser, err)
	}
	c.loaded, c.due = &certificate, pair.Due
	return c.loaded, nil
}
