package serviceendpoints

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
)

// webhookTimeout limits a request, unless the webhook's own timeout is shorter.
const webhookTimeout = 30 * time.Second

// The Service of the API server itself. A webhook with this Service is in an aggregated API server.
const (
	ownService = "kubernetes"
	ownPort    = 443
)

// Webhooks configures how the server reaches admission and conversion webhooks.
//
//	k8s.io/apiserver's client ──▶ one endpoint of the Service after the other (webhooks_endpoints.go)
//	                          ──▶ answers, bounded (webhooks_answers.go)
//
// With each request, the Service of a webhook is resolved to its endpoints that are ready then, like the
// Services of aggregated API servers. The client verifies the certificate for SERVICE.NAMESPACE.svc.
// All fields are required.
type Webhooks struct {
	// Endpoints resolves the Services of webhooks.
	Endpoints *Resolver
	// Loopback reaches the server itself.
	Loopback *rest.Config
	// Aggregated reports whether an aggregated API server serves a group version.
	Aggregated func(schema.GroupVersion) bool
}

// ServiceResolver returns the resolver for k8s.io/apiserver's clients. It keeps the name of the Service:
// the transports that Authentication adds resolve it.
func ServiceResolver() webhook.ServiceResolver { return webhook.NewDefaultServiceResolver() }

// Authentication returns the wrapper that configures how the server connects and authenticates to webhooks.
func (c Webhooks) Authentication() webhook.AuthenticationInfoResolverWrapper {
	return func(configured webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
		return &webhook.AuthenticationInfoResolverDelegator{
			ClientConfigForFunc: func(hostPort string) (*rest.Config, error) {
				if hostPort == fmt.Sprintf("%s.%s.svc:%d", ownService, metav1.NamespaceDefault, ownPort) {
					return c.own(), nil
				}
				config, err := configured.ClientConfigFor(hostPort)
				if err == nil {
					config.Wrap(boundAnswers)
				}
				return config, err
			},
			ClientConfigForServiceFunc: func(name, namespace string, port int) (*rest.Config, error) {
				if name == ownService && namespace == metav1.NamespaceDefault && port == ownPort {
					return c.own(), nil
				}
				config, err := configured.ClientConfigForService(name, namespace, port)
				if err != nil {
					return nil, err
				}
				ref := Reference{Namespace: namespace, Name: name, Port: int32(port)}
				config.Dial = Dialer().DialContext
				config.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil } // http.Transport wants it
				config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &endpointTransport{next, c.Endpoints, ref} })
				config.Wrap(boundAnswers)
				return config, nil
			},
		}
	}
}

// own returns the configuration for webhooks of aggregated API servers, to which the server sends requests
// through itself.
func (c Webhooks) own() *rest.Config {
	config := &rest.Config{BearerToken: c.Loopback.BearerToken, QPS: -1, Timeout: webhookTimeout}
	config.Wrap(func(http.RoundTripper) http.RoundTripper { return aggregatedOnly{c.Loopback.Transport, c.Aggregated} })
	config.Wrap(boundAnswers)
	return config
}

// aggregatedOnly forwards only requests for aggregated API servers. The server sends them as itself, with
// all permissions, so users who configure webhooks must not be able to send requests elsewhere.
type aggregatedOnly struct {
	next       http.RoundTripper
	aggregated func(schema.GroupVersion) bool
}

// RoundTrip implements http.RoundTripper.
func (a aggregatedOnly) RoundTrip(r *http.Request) (*http.Response, error) {
	parts := strings.SplitN(strings.TrimPrefix(r.URL.Path, "/"), "/", 4)
	if len(parts) == 4 && parts[0] == "apis" && a.aggregated(schema.GroupVersion{Group: parts[1], Version: parts[2]}) {
		return a.next.RoundTrip(r)
	}
	if r.Body != nil {
		r.Body.Close()
	}
	return nil, fmt.Errorf("service/%s in %q leads to webhooks of aggregated API servers only, and none serves %s: "+
		"use a path below /apis/GROUP/VERSION/ of an APIService, or the service of the webhook", ownService, metav1.NamespaceDefault, strconv.Quote(r.URL.Path))
}
