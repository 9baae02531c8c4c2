package aggregation

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/transport"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/coppice-dev/coppice/internal/apiserver/serviceendpoints"
)

const (
	handshakeTimeout = 5 * time.Second
	idlePerHost      = 25
)

// backend is an API server behind a Service, as one APIService describes it.
type backend struct {
	version schema.GroupVersion
	spec    apiregistrationv1.APIServiceSpec
	// transport sends requests to addresses of the Service; nil if broken is set.
	transport *http.Transport
	broken    error

	// available is whether the last check succeeded.
	available atomic.Bool
	// discovered is what the server has said that it serves; nil before it was asked.
	discovered atomic.Pointer[apidiscoveryv2.APIVersionDiscovery]
	// published is what discovery says of it; nil before anything was published. It is set before
	// the backend is in use, and by Reconcile, which is never called twice at a time for one.
	published *apidiscoveryv2.APIVersionDiscovery
	// openAPI is where it has the OpenAPI document of the group version; nil before it was asked.
	openAPI   atomic.Pointer[openAPIPath]
	openAPIV2 atomic.Pointer[openAPIV2] // nil before it was fetched
	// failures is the number of checks that have failed since one succeeded.
	failures atomic.Int32
}

// newBackend returns a backend. certificate returns the client certificate of the control plane.
func newBackend(s *apiregistrationv1.APIService, certificate func() (*tls.Certificate, error)) *backend {
	b := &backend{version: schema.GroupVersion{Group: s.Spec.Group, Version: s.Spec.Version}, spec: *s.Spec.DeepCopy()}
	config, err := transport.TLSConfigFor(&transport.Config{TLS: transport.TLSConfig{
		// Clients inside a cluster know the server by this name, so its certificate is for it.
		ServerName: s.Spec.Service.Name + "." + s.Spec.Service.Namespace + ".svc",
		Insecure:   s.Spec.InsecureSkipTLSVerify, CAData: s.Spec.CABundle,
	}})
	if err != nil {
		b.broken = fmt.Errorf("caBundle: %w", err)
		return b
	}
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificate() }
	b.transport = utilnet.SetTransportDefaults(&http.Transport{
		TLSClientConfig:     config,
		TLSHandshakeTimeout: handshakeTimeout,
		DialContext:         serviceendpoints.Dialer().DialContext,
		MaxIdleConnsPerHost: idlePerHost,
		DisableCompression:  true,                                                      // what the server sends goes on as it is
		Proxy:               func(*http.Request) (*url.URL, error) { return nil, nil }, // http.Transport wants it
	})
	return b
}

// describes reports whether the backend is what the APIService says.
func (b *backend) describes(s *apiregistrationv1.APIService) bool {
	return equality.Semantic.DeepEqual(b.spec, s.Spec)
}

// close ends the connections that no request uses.
func (b *backend) close() {
	if b.transport != nil {
		b.transport.CloseIdleConnections()
	}
}

// send sends a request of the control plane itself.
func (b *backend) send(ctx context.Context, address, path, accept string) (*http.Response, error) {
	if b.broken != nil {
		return nil, b.broken
	}
	location := url.URL{Scheme: "https", Host: address, Path: path}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, location.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", accept)
	transport.SetAuthProxyHeaders(request, aggregatorUser, "", []string{aggregatorGroup}, nil)
	// The round trip of a transport follows no redirects.
	response, err := b.transport.RoundTrip(request)
	if err != nil {
		return nil, fmt.Errorf("failing or missing response from %s: %w", location.String(), err)
	}
	if response.StatusCode < http.StatusOK || response.StatusCode >= http.StatusMultipleChoices {
		response.Body.Close()
		return nil, fmt.Errorf("bad status from %s: %d", location.String(), response.StatusCode)
	}
	return response, nil
}
