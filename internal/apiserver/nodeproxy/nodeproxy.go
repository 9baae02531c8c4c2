// Package nodeproxy serves nodes/proxy: HTTP requests through the API server to the agent of a node, in the
// same process (Source) or in another one, or to another port of the machine.
//
// The address of a machine is in the status of its Node, which the node itself writes. A server that
// answers there as the agent must prove that it is the agent of that node (package nodeagents). Other ports
// are reached only at addresses that are neither this machine's loopback nor link-local, and only of nodes
// that are not simulated.
package nodeproxy

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/coppice-dev/coppice/internal/apiserver/nodeagents"
	"github.com/coppice-dev/coppice/internal/apiserver/podstreams"
)

// connectWithin limits connecting to a machine.
const connectWithin = 10 * time.Second

// Source returns the handler of the agent of a node in this process. For a node of another process, the
// error is a NotFound of nodes.
type Source func(node string) (http.Handler, error)

// Config configures an Endpoint. All fields are required.
type Config struct {
	// Nodes is the registry of nodes.
	Nodes rest.Getter
	// TLS returns the configuration of connections to the agent of a node, which accepts only the
	// certificate of that node.
	TLS func(node string) (*tls.Config, error)
	// Authorizer authorizes requests to the server.
	Authorizer authorizer.Authorizer
}

// Endpoint is nodes/NAME/proxy.
type Endpoint struct {
	Config

	source atomic.Pointer[Source]
}

var _ rest.Connecter = (*Endpoint)(nil)

// New returns an Endpoint without a Source.
func New(c Config) *Endpoint { return &Endpoint{Config: c} }

// SetSource sets the source for the nodes in this process; nil means none.
func (e *Endpoint) SetSource(source Source) {
	if source == nil {
		e.source.Store(nil)
		return
	}
	e.source.Store(&source)
}

// New implements rest.Storage.
func (e *Endpoint) New() runtime.Object { return &corev1.NodeProxyOptions{} }

// Destroy implements rest.Storage. The storage belongs to the main endpoint.
func (e *Endpoint) Destroy() {}

// ConnectMethods implements rest.Connecter.
func (e *Endpoint) ConnectMethods() []string {
	return []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodHead, http.MethodOptions}
}

// NewConnectOptions implements rest.Connecter.
func (e *Endpoint) NewConnectOptions() (options runtime.Object, subpath bool, path string) {
	return &corev1.NodeProxyOptions{}, true, "path"
}

// Connect implements rest.Connecter. A name may be NAME, NAME:PORT or SCHEME:NAME:PORT.
func (e *Endpoint) Connect(ctx context.Context, id string, options runtime.Object, responder rest.Responder) (http.Handler, error) {
	o, ok := options.(*corev1.NodeProxyOptions)
	if !ok {
		return nil, fmt.Errorf("invalid options object: %T", options)
	}
	scheme, name, port, valid := utilnet.SplitSchemeNamePort(id)
	if !valid {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("invalid node request %q", id))
	}
	obj, err := e.Nodes.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	node, ok := obj.(*corev1.Node)
	if !ok {
		return nil, fmt.Errorf("node %s is a %T", name, obj)
	}
	handler, err := e.handler(node, scheme, port, o.Path, responder)
	if err != nil {
		return nil, err
	}
	return e.authorized(handler, responder), nil
}

// authorized requires the permission to create nodes/proxy for upgrades of a connection. A user with get,
// who can read from agents, must not be able to run commands in containers through a WebSocket.
func (e *Endpoint) authorized(next http.Handler, responder rest.Responder) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if httpstream.IsUpgradeRequest(r) {
			if err := podstreams.AuthorizeCreate(r.Context(), e.Authorizer); err != nil {
				responder.Error(err)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// handler returns the handler of a path at a port of a node, or of its agent if there is no port.
func (e *Endpoint) handler(node *corev1.Node, scheme, port, path string, responder rest.Responder) (http.Handler, error) {
	if source := e.source.Load(); source != nil && isAgent(node, port) {
		local, err := (*source)(node.Name)
		if err == nil {
			return at(path, local), nil
		}
		if !nodeagents.IsUnknownNode(err) {
			return nil, err
		}
	}
	to, transport, err := e.locate(node, scheme, port)
	if err != nil {
		return nil, err
	}
	to.Path = utilnet.JoinPreservingTrailingSlash(to.Path, path)
	return proxy.NewUpgradeAwareHandler(to, transport, true, false, proxy.NewErrorResponder(responder)), nil
}

// locate returns the URL of a port of a node, or of its agent in another process, and the transport to it.
func (e *Endpoint) locate(node *corev1.Node, scheme, port string) (*url.URL, http.RoundTripper, error) {
	dialer := &net.Dialer{Timeout: connectWithin}
	if isAgent(node, port) {
		address, err := nodeagents.Address(node)
		if err != nil {
			return nil, nil, err
		}
		config, err := e.TLS(node.Name)
		if err != nil {
			return nil, nil, fmt.Errorf("connect to the agent of node %s: %w", node.Name, err)
		}
		// A kept-alive connection would be looked up by its address, which any node can put into its
		// status.
		return &url.URL{Scheme: "https", Host: address}, &http.Transport{TLSClientConfig: config, DialContext: dialer.DialContext, DisableKeepAlives: true}, nil
	}
	host, err := machine(node)
	if err != nil {
		return nil, nil, err
	}
	// The server there has its own certificates, which no authority known to the API server has issued.
	own := &http.Transport{
		DialContext: dialer.DialContext, DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}
	return &url.URL{Scheme: scheme, Host: net.JoinHostPort(host, port)}, own, nil
}

// at returns a handler that serves requests at a path of the agent.
func at(of string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to := *r.URL
		to.Path, to.RawPath = path.Join("/", of), ""
		if strings.HasSuffix(of, "/") && to.Path != "/" {
			to.Path += "/"
		}
		own := r.Clone(r.Context())
		own.URL = &to
		next.ServeHTTP(w, own)
	})
}
