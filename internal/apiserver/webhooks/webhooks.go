// Package webhooks configures how the server reaches admission and conversion webhooks.
package webhooks

import (
	"fmt"
	"net/url"

	"go.opentelemetry.io/otel/trace/noop"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
)

// ServiceResolver resolves no Services: nothing routes from the API server to Services here, so
// webhooks must be configured by URL.
type ServiceResolver struct{}

var _ webhook.ServiceResolver = ServiceResolver{}

// ResolveEndpoint implements webhook.ServiceResolver.
func (ServiceResolver) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	return nil, fmt.Errorf("the API server cannot reach service %s/%s:%d: configure the webhook with a url instead of a service", namespace, name, port)
}

// Authentication returns how the server authenticates to webhooks, given its own client configuration.
func Authentication(loopback *rest.Config) webhook.AuthenticationInfoResolverWrapper {
	return webhook.NewDefaultAuthenticationInfoResolverWrapper(nil, nil, loopback, noop.NewTracerProvider())
}
