package inprocess

import (
	"errors"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// Loopback sends requests to the handler of a server, whose loopback configuration is needed before the handler exists.
type Loopback struct {
	handler func() http.Handler
}

// NewLoopback returns the transport to a handler, which is nil until the server is assembled.
func NewLoopback(handler func() http.Handler) *Loopback { return &Loopback{handler} }

// Config returns a client configuration with the address and the credential of the generic server's own
// loopback configuration, and with this transport. It uses no TLS and has no rate limit. Its user agent is
// kube-apiserver: a generic server answers such requests also while it shuts down, because other requests wait for them.
func (t *Loopback) Config(generic *rest.Config) *rest.Config {
	return &rest.Config{
		Host:          generic.Host,
		BearerToken:   generic.BearerToken,
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf, AcceptContentTypes: runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON},
		UserAgent:     "kube-apiserver/coppice",
		QPS:           -1,
		// Warnings are for the author of a template; controllers would get them again with each pod.
		WarningHandler: rest.NoWarnings{},
		Transport:      t,
	}
}

// RoundTrip implements http.RoundTripper.
func (t *Loopback) RoundTrip(r *http.Request) (*http.Response, error) {
	handler := t.handler()
	if handler == nil {
		return nil, errors.New("the API server is not assembled yet")
	}
	return transport{handler}.RoundTrip(r)
}
