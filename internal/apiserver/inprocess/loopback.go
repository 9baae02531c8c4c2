package inprocess

import (
	"errors"
	"net/http"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// Loopback sends requests to a handler that is set later: a server's loopback
// configuration is needed before its handler exists. The zero value is ready for use.
type Loopback struct {
	handler atomic.Pointer[http.RoundTripper]
}

// Config returns a client configuration with the address and the credential of the generic server's own
// loopback configuration, and with this transport. It uses no TLS and has no rate limit.
func (t *Loopback) Config(generic *rest.Config) *rest.Config {
	return &rest.Config{
		Host:          generic.Host,
		BearerToken:   generic.BearerToken,
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf, AcceptContentTypes: runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON},
		QPS:           -1,
		// Warnings are for the author of a template; controllers would get them again with each pod.
		WarningHandler: rest.NoWarnings{},
		Transport:      t,
	}
}

// SetHandler sets the handler.
func (t *Loopback) SetHandler(handler http.Handler) {
	transport := Transport(handler)
	t.handler.Store(&transport)
}

// RoundTrip implements http.RoundTripper.
func (t *Loopback) RoundTrip(r *http.Request) (*http.Response, error) {
	transport := t.handler.Load()
	if transport == nil {
		return nil, errors.New("the API server is not assembled yet")
	}
	return (*transport).RoundTrip(r)
}
