package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"
	translate "k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/coppice-dev/coppice/internal/node/kubeletapi"
)

// streamTask describes the request in errors about the agent.
const streamTask = "reach the containers"

// streams are pods/exec, pods/attach and pods/portforward. The API server only forwards bytes, to the container runtime
// of a node in this process (local) or to the agent of a node in another one (remote). Before that, it chooses the
// container, and checks that the user may create such a stream.
//
// Clients upgrade the connection to SPDY or WebSocket. Like kube-apiserver, forward translates to SPDY the WebSocket
// protocols that runtimes do not support.
type streams struct {
	pods       rest.Getter
	local      func() Nodes
	remote     remote
	authorizer authorizer.Authorizer
}

// addTo adds the subresources to the storages of the core group.
func (s streams) addTo(core map[string]rest.Storage) {
	core["pods/exec"] = &streamEndpoint{s, func() runtime.Object { return &corev1.PodExecOptions{} }}
	core["pods/attach"] = &streamEndpoint{s, func() runtime.Object { return &corev1.PodAttachOptions{} }}
	core["pods/portforward"] = &streamEndpoint{s, func() runtime.Object { return &corev1.PodPortForwardOptions{} }}
}

// streamEndpoint is one subresource.
type streamEndpoint struct {
	streams

	options func() runtime.Object
}

var _ rest.Connecter = (*streamEndpoint)(nil)

// New implements rest.Storage.
func (e *streamEndpoint) New() runtime.Object { return e.options() }

// Destroy implements rest.Storage. The storage belongs to the main endpoint.
func (e *streamEndpoint) Destroy() {}

// ConnectMethods implements rest.Connecter. Browsers can open WebSockets with GET only.
func (e *streamEndpoint) ConnectMethods() []string { return []string{http.MethodGet, http.MethodPost} }

// NewConnectOptions implements rest.Connecter.
func (e *streamEndpoint) NewConnectOptions() (options runtime.Object, subpath bool, path string) {
	return e.options(), false, ""
}

// Connect implements rest.Connecter.
func (e *streamEndpoint) Connect(ctx context.Context, name string, options runtime.Object, responder rest.Responder) (http.Handler, error) {
	if err := authorizeCreate(ctx, e.authorizer); err != nil {
		return nil, err
	}
	request, err := requestOf(options)
	if err != nil {
		return nil, err
	}
	pod, err := get[corev1.Pod](ctx, e.pods, name)
	if err != nil {
		return nil, err
	}
	if request.Kind != kubeletapi.PortForward {
		if request.Container, err = chooseContainer(pod, request.Container); err != nil {
			return nil, err
		}
	}
	if pod.Spec.NodeName == "" {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("pod %s does not have a host assigned", name))
	}
	to, transport, err := e.locateStream(ctx, pod, request)
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

// locateStream returns the URL of a stream and the transport to it: on a node in this process, or else at the
// agent of a node in another one.
func (s streams) locateStream(ctx context.Context, pod *corev1.Pod, r kubeletapi.StreamRequest) (*url.URL, http.RoundTripper, error) {
	dialer := &net.Dialer{Timeout: agentTimeout}
	if nodes := s.local(); nodes != nil {
		to, err := nodes.Stream(ctx, pod, r)
		if !IsUnknownNode(err) {
			return to, &http.Transport{DialContext: dialer.DialContext}, err
		}
	}
	address, err := s.remote.find(ctx, pod, streamTask)
	if err != nil {
		return nil, nil, err
	}
	config, err := s.remote.configuration(pod.Spec.NodeName)
	if err != nil {
		return nil, nil, err
	}
	transport := &http.Transport{
		TLSClientConfig: config,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if op, ok := errors.AsType[*net.OpError](err); ok {
				err = unavailable(pod, streamTask, fmt.Sprintf("does not answer at %s: %s", address, op.Err))
			}
			return conn, err
		},
	}
	path, query := r.URL(pod)
	return &url.URL{Scheme: "https", Host: address, Path: path, RawQuery: query}, transport, nil
}

// forward returns a handler that forwards a stream. It translates WebSockets that can close single streams,
// and WebSockets for port forwarding, to SPDY; it forwards all other streams unchanged.
func forward(to *url.URL, transport http.RoundTripper, r kubeletapi.StreamRequest, responder rest.Responder) http.Handler {
	direct := proxy.NewUpgradeAwareHandler(to, transport, false, true, proxy.NewErrorResponder(responder))
	direct.RejectForwardingRedirects = true
	if r.Kind == kubeletapi.PortForward {
		return translate.NewTranslatingHandler(direct, translate.NewTunnelingHandler(direct), wsstream.IsWebSocketRequestWithTunnelingProtocol)
	}
	process := translate.NewStreamTranslatorHandler(to, transport, 0, translate.Options{Stdin: r.Stdin, Stdout: r.Stdout, Stderr: r.Stderr, Tty: r.TTY})
	return translate.NewTranslatingHandler(direct, process, wsstream.IsWebSocketRequestWithStreamCloseProtocol)
}
