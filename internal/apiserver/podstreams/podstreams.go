// Package podstreams serves pods/exec, pods/attach and pods/portforward. The API server only forwards
// bytes, to the container runtime of a node in the same process (Source), or to the agent of a node in
// another one. Before that, it chooses the container, and checks that the user may create such a stream.
//
// Clients upgrade the connection to SPDY or WebSocket. Like kube-apiserver, this package translates to SPDY
// the WebSocket protocols that runtimes do not support.
package podstreams

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/coppice-dev/coppice/internal/apiserver/nodeagents"
	"github.com/coppice-dev/coppice/internal/node/kubeletapi"
)

const (
	// connectWithin limits connecting to an agent.
	connectWithin = 10 * time.Second
	// task describes the request in errors about the agent.
	task = "reach the containers"
)

// Source returns the URL of a stream of a pod on this machine. For a pod on a node of another process, the
// error is a NotFound of nodes.
type Source func(ctx context.Context, pod *corev1.Pod, r kubeletapi.StreamRequest) (*url.URL, error)

// Config configures Streams. All fields are required.
type Config struct {
	// Pods and Nodes are the registries of pods and nodes.
	Pods, Nodes rest.Getter
	// TLS returns the configuration of connections to the agent of a node, which accepts only
	// the certificate of that node.
	TLS func(node string) (*tls.Config, error)
	// Authorizer authorizes requests to the server.
	Authorizer authorizer.Authorizer
}

// Streams are the streams to pods.
type Streams struct {
	Config

	source atomic.Pointer[Source]
}

// New returns Streams without a Source.
func New(c Config) *Streams { return &Streams{Config: c} }

// SetSource sets the source of streams to pods on nodes in this process; nil means none.
func (s *Streams) SetSource(source Source) {
	if source == nil {
		s.source.Store(nil)
		return
	}
	s.source.Store(&source)
}

// AddTo adds the subresources to the storages of the core group.
func (s *Streams) AddTo(core map[string]rest.Storage) {
	core["pods/exec"] = &endpoint{s, func() runtime.Object { return &corev1.PodExecOptions{} }}
	core["pods/attach"] = &endpoint{s, func() runtime.Object { return &corev1.PodAttachOptions{} }}
	core["pods/portforward"] = &endpoint{s, func() runtime.Object { return &corev1.PodPortForwardOptions{} }}
}

// endpoint is one subresource.
type endpoint struct {
	*Streams

	options func() runtime.Object
}

var _ rest.Connecter = (*endpoint)(nil)

// New implements rest.Storage.
func (e *endpoint) New() runtime.Object { return e.options() }

// Destroy implements rest.Storage. The storage belongs to the main endpoint.
func (e *endpoint) Destroy() {}

// ConnectMethods implements rest.Connecter. Browsers can open WebSockets with GET only.
func (e *endpoint) ConnectMethods() []string { return []string{http.MethodGet, http.MethodPost} }

// NewConnectOptions implements rest.Connecter.
func (e *endpoint) NewConnectOptions() (options runtime.Object, subpath bool, path string) {
	return e.options(), false, ""
}

// Connect implements rest.Connecter.
func (e *endpoint) Connect(ctx context.Context, name string, options runtime.Object, responder rest.Responder) (http.Handler, error) {
	if err := AuthorizeCreate(ctx, e.Authorizer); err != nil {
		return nil, err
	}
	request, err := requestOf(options)
	if err != nil {
		return nil, err
	}
	obj, err := e.Pods.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil, fmt.Errorf("pod %s is a %T", name, obj)
	}
	if request.Kind != kubeletapi.PortForward {
		if request.Container, err = nodeagents.ChooseContainer(pod, request.Container); err != nil {
			return nil, err
		}
	}
	if pod.Spec.NodeName == "" {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("pod %s does not have a host assigned", name))
	}
	to, transport, err := e.locate(ctx, pod, request)
	if err != nil {
		return nil, err
	}
	return forward(to, transport, request, responder), nil
}

// requestOf returns the request that the options of a subresource describe.
func requestOf(options runtime.Object) (kubeletapi.StreamRequest, error) {
	switch o := options.(type) {
	case *corev1.PodExecOptions:
		return kubeletapi.StreamRequest{
			Kind: kubeletapi.Exec, Container: o.Container, Command: o.Command,
			Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, TTY: o.TTY,
		}, withStreams(o.Stdin, o.Stdout, o.Stderr)
	case *corev1.PodAttachOptions:
		return kubeletapi.StreamRequest{
			Kind: kubeletapi.Attach, Container: o.Container, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, TTY: o.TTY,
		}, withStreams(o.Stdin, o.Stdout, o.Stderr)
	case *corev1.PodPortForwardOptions:
		return kubeletapi.StreamRequest{Kind: kubeletapi.PortForward, Ports: o.Ports}, nil
	}
	return kubeletapi.StreamRequest{}, fmt.Errorf("invalid options object: %T", options)
}

// withStreams returns an error unless at least one of the streams of a process is requested.
func withStreams(requested ...bool) error {
	for _, r := range requested {
		if r {
			return nil
		}
	}
	return apierrors.NewBadRequest("you must specify at least 1 of stdin, stdout, stderr")
}

// locate returns the URL of a stream and the transport to it: on a node in this process, or else at the
// agent of a node in another one.
func (s *Streams) locate(ctx context.Context, pod *corev1.Pod, r kubeletapi.StreamRequest) (*url.URL, http.RoundTripper, error) {
	dialer := &net.Dialer{Timeout: connectWithin}
	if source := s.source.Load(); source != nil {
		to, err := (*source)(ctx, pod, r)
		if !nodeagents.IsUnknownNode(err) {
			return to, &http.Transport{DialContext: dialer.DialContext}, err
		}
	}
	address, err := nodeagents.Find(ctx, s.Nodes, pod, task)
	if err != nil {
		return nil, nil, err
	}
	config, err := s.TLS(pod.Spec.NodeName)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the agent of node %s: %w", pod.Spec.NodeName, err)
	}
	transport := &http.Transport{
		TLSClientConfig: config,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if op, ok := errors.AsType[*net.OpError](err); ok {
				err = nodeagents.Unavailable(pod, task, fmt.Sprintf("does not answer at %s: %s", address, op.Err))
			}
			return conn, err
		},
	}
	path, query := r.URL(pod)
	return &url.URL{Scheme: "https", Host: address, Path: path, RawQuery: query}, transport, nil
}
