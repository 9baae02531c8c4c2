package kubelet

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/streaming/pkg/httpstream"
)

// nodeProxy is nodes/NAME/proxy: HTTP requests through the API server to the agent of a node, in this process (local) or
// in another one, or to another port of the machine.
//
// The address of a machine is in the status of its Node, which the node itself writes. A server that answers there as
// the agent must prove that it is the agent of that node. Other ports are reached only at addresses that are neither
// this machine's loopback nor link-local, and only of nodes that are not simulated.
type nodeProxy struct {
	local      func() Nodes
	remote     remote
	authorizer authorizer.Authorizer
}

var _ rest.Connecter = (*nodeProxy)(nil)

// New implements rest.Storage.
func (e *nodeProxy) New() runtime.Object { return &corev1.NodeProxyOptions{} }

// Destroy implements rest.Storage. The storage belongs to the main endpoint.
func (e *nodeProxy) Destroy() {}

// ConnectMethods implements rest.Connecter.
func (e *nodeProxy) ConnectMethods() []string {
	return []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodHead, http.MethodOptions}
}

// NewConnectOptions implements rest.Connecter.
func (e *nodeProxy) NewConnectOptions() (options runtime.Object, subpath bool, path string) {
	return &corev1.NodeProxyOptions{}, true, "path"
}

// Connect implements rest.Connecter. A name may be NAME, NAME:PORT or SCHEME:NAME:PORT.
func (e *nodeProxy) Connect(ctx context.Context, id string, options runtime.Object, responder rest.Responder) (http.Handler, error) {
	o, ok := options.(*corev1.NodeProxyOptions)
	if !ok {
		return nil, fmt.Errorf("invalid options object: %T", options)
	}
	scheme, name, port, valid := utilnet.SplitSchemeNamePort(id)
	if !valid {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("invalid node request %q", id))
	}
	node, err := get[corev1.Node](ctx, e.remote.nodes, name)
	if err != nil {
		return nil, err
	}
	handler, err := e.handler(node, scheme, port, o.Path, responder)
	if err != nil {
		return nil, err
	}
	return e.authorized(handler, responder), nil
}

// authorized requires the permission to create nodes/proxy for upgrades of a connection. A user with get,
// who can read from agents, must not be able to run commands in containers through a WebSocket.
func (e *nodeProxy) authorized(next http.Handler, responder rest.Responder) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if httpstream.IsUpgradeRequest(r) {
			if err := authorizeCreate(r.Context(), e.authorizer); err != nil {
				responder.Error(err)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// handler returns the handler of a path at a port of a node, or of its agent if there is no port.
func (e *nodeProxy) handler(node *corev1.Node, scheme, port, path string, responder rest.Responder) (http.Handler, error) {
	if nodes := e.local(); nodes != nil && isAgent(node, port) {
		local, err := nodes.Handler(node.Name)
		if err == nil {
			return at(path, local), nil
		}
		if !IsUnknownNode(err) {
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
func (e *nodeProxy) locate(node *corev1.Node, scheme, port string) (*url.URL, http.RoundTripper, error) {
	dialer := &net.Dialer{Timeout: agentTimeout}
	if isAgent(node, port) {
		address, err := addressOf(node)
		if err != nil {
			return nil, nil, err
		}
		config, err := e.remote.configuration(node.Name)
		if err != nil {
			return nil, nil, err
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
