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

	// available reports whether the last check succeeded.
	available atomic.Bool
	// discovered is the last discovery document of the server; nil before the first check.
	discovered atomic.Pointer[apidiscoveryv2.APIVersionDiscovery]
	// published is its entry in our discovery; nil before the first one. It is set before the backend is in
	// use, and by Reconcile, which never runs twice at a time for one backend.
	published *apidiscoveryv2.APIVersionDiscovery
	// openAPI is the path of its OpenAPI v3 document for the group version; nil before the first request
	// for it.
	openAPI   atomic.Pointer[openAPIPath]
	openAPIV2 atomic.Pointer[openAPIV2] // nil before it was fetched
	// failures is the number of failed checks since the last success.
	failures atomic.Int32
}

// newBackend returns a backend. certificate returns the client certificate of the control plane.
func newBackend(s *apiregistrationv1.APIService, certificate func() (*tls.Certificate, error)) *backend {
	b := &backend{version: schema.GroupVersion{Group: s.Spec.Group, Version: s.Spec.Version}, spec: *s.Spec.DeepCopy()}
	config, err := transport.TLSConfigFor(&transport.Config{TLS: transport.TLSConfig{
		// Clients inside a cluster know the server by this name, so its certificate must contain it.
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
		DisableCompression:  true,                                                      // the proxy passes responses on unchanged
		Proxy:               func(*http.Request) (*url.URL, error) { return nil, nil }, // http.Transport wants it
	})
	return b
}

// describes reports whether the backend has the spec of the APIService.
func (b *backend) describes(s *apiregistrationv1.APIService) bool {
	return equality.Semantic.DeepEqual(b.spec, s.Spec)
}

// close closes idle connections.
func (b *backend) close() {
	if b.transport != nil {
		b.transport.CloseIdleConnections()
	}
}

// send sends a request on behalf of the control plane itself.
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
	// RoundTrip follows no redirects.
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
