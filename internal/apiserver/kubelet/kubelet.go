// Package kubelet serves the subresources of nodes and pods whose requests the API server passes on to the kubelet of
// a node, which is called its agent here, or to a port behind it:
//
//	pods/log                                   logs.go
//	pods/exec, pods/attach, pods/portforward   streams.go
//	nodes/proxy                                nodeproxy.go
//	pods/proxy, services/proxy                 podproxy.go
//
// An agent runs in this process (Nodes) or in another one. The address of an agent in another process is in the status
// of its Node, which the node itself writes. So the server at that address is trusted, and receives the client
// certificate, only if it presents the certificate of that node.
//
// What is decided without I/O is in plan.go.
package kubelet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/coppice-dev/coppice/internal/node/kubeletapi"
)

// agentTimeout limits connecting to an agent, or to another port of its machine.
const agentTimeout = 10 * time.Second

// Nodes are the agents of the nodes in this process. For a node of another process, the error of each method is a
// NotFound of nodes (IsUnknownNode). Nodes must be safe for concurrent use.
type Nodes interface {
	// Logs opens the log of a container. For an unknown container, the error is a NotFound.
	Logs(ctx context.Context, pod *corev1.Pod, o *corev1.PodLogOptions) (io.ReadCloser, error)
	// Stream returns the URL of a stream of a pod, on this machine.
	Stream(ctx context.Context, pod *corev1.Pod, r kubeletapi.StreamRequest) (*url.URL, error)
	// Handler returns the handler of the agent of a node.
	Handler(node string) (http.Handler, error)
}

// Config configures the subresources. All fields are required.
type Config struct {
	// Local returns the nodes of this process, which may change; nil means none.
	Local func() Nodes
	// TLS returns the configuration of connections to the agent of a node, which accepts only the
	// certificate of that node.
	TLS func(node string) (*tls.Config, error)
	// Authorizer authorizes requests to the server.
	Authorizer authorizer.Authorizer
}

// AddTo adds the subresources to the storages of the core group, whose registries they read.
func AddTo(core map[string]rest.Storage, c Config) error {
	registries := map[string]rest.Getter{}
	for _, resource := range []string{"pods", "nodes", "services", "endpoints"} {
		getter, ok := core[resource].(rest.Getter)
		if !ok {
			return fmt.Errorf("requests to nodes and pods need to read %s, whose registry is a %T", resource, core[resource])
		}
		registries[resource] = getter
	}
	pods, remote := registries["pods"], remote{registries["nodes"], c.TLS}
	core["pods/log"] = &logEndpoint{pods: pods, local: c.Local, remote: remoteLogs{remote: remote}.Logs}
	streams{pods: pods, local: c.Local, remote: remote, authorizer: c.Authorizer}.addTo(core)
	core["nodes/proxy"] = &nodeProxy{local: c.Local, remote: remote, authorizer: c.Authorizer}
	podProxy{pods: pods, nodes: remote.nodes, services: registries["services"], endpoints: registries["endpoints"]}.addTo(core)
	return nil
}

// remote finds the agents of nodes in other processes.
type remote struct {
	nodes rest.Getter
	// tls is Config.TLS.
	tls func(node string) (*tls.Config, error)
}

// find returns the address of the agent of a pod's node. task describes the request in the error: "read the
// logs".
func (r remote) find(ctx context.Context, pod *corev1.Pod, task string) (address string, err error) {
	name := pod.Spec.NodeName
	node, err := get[corev1.Node](ctx, r.nodes, name)
	if apierrors.IsNotFound(err) {
		return "", unavailable(pod, task, "cannot be found because the node does not exist")
	}
	if err != nil {
		return "", fmt.Errorf("read node %s: %w", name, err)
	}
	address, flaw := locate(node)
	if flaw != "" {
		return "", unavailable(pod, task, flaw)
	}
	return address, nil
}

// configuration returns the configuration of connections to the agent of a node.
func (r remote) configuration(node string) (*tls.Config, error) {
	config, err := r.tls(node)
	if err != nil {
		return nil, fmt.Errorf("connect to the agent of node %s: %w", node, err)
	}
	return config, nil
}

// addressOf returns the address of the agent of a node.
func addressOf(node *corev1.Node) (string, error) {
	address, flaw := locate(node)
	if flaw != "" {
		return "", apierrors.NewServiceUnavailable(fmt.Sprintf("cannot reach the agent of node %s, which %s", node.Name, flaw))
	}
	return address, nil
}

// locate returns the address of the agent of a node, or the reason why it cannot be reached.
func locate(node *corev1.Node) (address, flaw string) {
	port := node.Status.DaemonEndpoints.KubeletEndpoint.Port
	if port < 1 || port > 65535 {
		return "", "runs in another process and serves neither logs nor streams"
	}
	for _, at := range node.Status.Addresses {
		if at.Type != corev1.NodeInternalIP {
			continue
		}
		if net.ParseIP(at.Address) == nil {
			return "", fmt.Sprintf("has the address %q in its status, which is not an IP address", at.Address)
		}
		return net.JoinHostPort(at.Address, strconv.Itoa(int(port))), ""
	}
	return "", "has no address in its status"
}

// unavailable returns the error for an agent that cannot be reached.
func unavailable(pod *corev1.Pod, task, why string) error {
	return apierrors.NewServiceUnavailable(fmt.Sprintf("cannot %s of pod %s from the agent of node %s, which %s", task, pod.Name, pod.Spec.NodeName, why))
}

// IsUnknownNode reports whether an agent's error says that it does not manage the pod's node.
func IsUnknownNode(err error) bool {
	answer, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && apierrors.IsNotFound(err) && answer.ErrStatus.Details != nil && answer.ErrStatus.Details.Kind == "nodes"
}

// get reads an object of one type.
func get[T any](ctx context.Context, from rest.Getter, name string) (*T, error) {
	obj, err := from.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	object, ok := any(obj).(*T)
	if !ok {
		return nil, fmt.Errorf("the registry of %s has a %T", name, obj)
	}
	return object, nil
}
