package kubelet

import (
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/proxy"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// podTimeout limits connecting to a pod.
const podTimeout = 30 * time.Second

// podProxy is pods/proxy and services/proxy: HTTP requests through the API server to a port of a pod.
//
// The addresses of requests come from other users: nodes write them into the status of pods, and users with write access
// to Endpoints into Endpoints. So requests go to addresses of pods only, and never to this machine's loopback, a
// link-local address, or the address of a simulated pod, which another machine may have.
type podProxy struct{ pods, nodes, services, endpoints rest.Getter }

// addTo adds the subresources to the storages of the core group.
func (r podProxy) addTo(core map[string]rest.Storage) {
	// No authority known to the server has issued the certificates of pods.
	transport := &http.Transport{
		DialContext:     (&net.Dialer{Timeout: podTimeout}).DialContext,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}
	core["pods/proxy"] = &podProxyEndpoint{r.pod, transport, func() runtime.Object { return &corev1.PodProxyOptions{} }}
	core["services/proxy"] = &podProxyEndpoint{r.service, transport, func() runtime.Object { return &corev1.ServiceProxyOptions{} }}
}

// podProxyEndpoint is one subresource.
type podProxyEndpoint struct {
	locate    func(ctx context.Context, scheme, name, port string) (*url.URL, error)
	transport http.RoundTripper
	options   func() runtime.Object
}

var _ rest.Connecter = (*podProxyEndpoint)(nil)

// New implements rest.Storage.
func (e *podProxyEndpoint) New() runtime.Object { return e.options() }

// Destroy implements rest.Storage. The storage belongs to the main endpoint.
func (e *podProxyEndpoint) Destroy() {}

// ConnectMethods implements rest.Connecter.
func (e *podProxyEndpoint) ConnectMethods() []string {
	return []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodHead, http.MethodOptions}
}

// NewConnectOptions implements rest.Connecter.
func (e *podProxyEndpoint) NewConnectOptions() (options runtime.Object, subpath bool, path string) {
	return e.options(), true, "path"
}

// Connect implements rest.Connecter. A name may be NAME, NAME:PORT or SCHEME:NAME:PORT.
func (e *podProxyEndpoint) Connect(ctx context.Context, id string, options runtime.Object, responder rest.Responder) (http.Handler, error) {
	scheme, name, port, valid := utilnet.SplitSchemeNamePort(id)
	if !valid {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("invalid request %q", id))
	}
	to, err := e.locate(ctx, scheme, name, port)
	if err != nil {
		return nil, err
	}
	switch o := options.(type) {
	case *corev1.PodProxyOptions:
		to.Path = utilnet.JoinPreservingTrailingSlash(to.Path, o.Path)
	case *corev1.ServiceProxyOptions:
		to.Path = utilnet.JoinPreservingTrailingSlash(to.Path, o.Path)
	default:
		return nil, fmt.Errorf("invalid options object: %T", options)
	}
	return proxy.NewUpgradeAwareHandler(to, e.transport, true, false, proxy.NewErrorResponder(responder)), nil
}

// pod returns the URL of a port of a pod: the given one, or the pod's first.
func (r podProxy) pod(ctx context.Context, scheme, name, port string) (*url.URL, error) {
	pod, err := get[corev1.Pod](ctx, r.pods, name)
	if err != nil {
		return nil, err
	}
	if port == "" {
		port = firstPort(pod)
	}
	return r.at(ctx, pod, pod.Status.PodIP, scheme, port)
}

// at returns the URL of a port at an address of a pod. The default is the port of the scheme.
func (r podProxy) at(ctx context.Context, pod *corev1.Pod, address, scheme, port string) (*url.URL, error) {
	ip := net.ParseIP(address)
	if ip == nil || !ip.IsGlobalUnicast() {
		return nil, apierrors.NewBadRequest("address not allowed")
	}
	node, err := get[corev1.Node](genericrequest.WithNamespace(ctx, ""), r.nodes, pod.Spec.NodeName)
	if err != nil {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("cannot reach pod %s: find its node: %s", pod.Name, err))
	}
	if isSimulated(node) {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("pod %s is on node %s, which is simulated: nothing is served there", pod.Name, node.Name))
	}
	host := net.JoinHostPort(address, port)
	if port == "" {
		host = strings.TrimSuffix(host, ":")
	}
	return &url.URL{Scheme: scheme, Host: host}, nil
}

// firstPort returns the first port that a container of a pod declares, or "".
func firstPort(pod *corev1.Pod) string {
	for i := range pod.Spec.Containers {
		if ports := pod.Spec.Containers[i].Ports; len(ports) > 0 {
			return strconv.Itoa(int(ports[0].ContainerPort))
		}
	}
	return ""
}

// service returns the URL of a port of a service at one of its ready pods. The port is a name or a number;
// the default is the port without a name.
func (r podProxy) service(ctx context.Context, scheme, name, port string) (*url.URL, error) {
	service, err := get[corev1.Service](ctx, r.services, name)
	if err != nil {
		return nil, err
	}
	if port, err = portName(service, port); err != nil {
		return nil, err
	}
	endpoints, err := get[corev1.Endpoints](ctx, r.endpoints, name)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	if endpoints == nil || len(endpoints.Subsets) == 0 {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available for service %q", name))
	}
	all := candidates(endpoints, port)
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] }) // spread requests over the pods
	for _, candidate := range all {
		pod, err := get[corev1.Pod](ctx, r.pods, candidate.pod)
		if err != nil || !hasAddress(pod, candidate.address) {
			continue
		}
		if to, err := r.at(ctx, pod, candidate.address, scheme, candidate.port); err == nil {
			return to, nil
		}
	}
	return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available for service %q", name))
}
