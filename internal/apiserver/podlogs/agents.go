package podlogs

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/coppice-dev/coppice/internal/containerlogs"
)

const (
	// patience is how long an agent may take to let itself be known, and to begin its answer.
	patience = 10 * time.Second
	// maxRefusal is how much is read of an answer that is no log, in bytes, and maxHeader of
	// the header of any.
	maxRefusal = 1 << 10
	maxHeader  = 16 << 10
)

// errCutOff is that a log ends where the connection to the agent does, and not where it ends.
var errCutOff = errors.New("the agent has gone")

// Agents have the logs of the containers on nodes in other processes. Where the agent of
// a node is, the node says itself. So what answers there is believed, and is told who
// asks, only if it shows the certificate of that node.
type Agents struct {
	// Nodes is the registry of nodes.
	Nodes rest.Getter
	// TLS is for connections to the agent of a node, and to nobody else: it shows the
	// server's certificate to whoever shows that of the node.
	TLS func(node string) (*tls.Config, error)

	patience time.Duration // a test's; patience if 0
}

// Logs is a Source.
func (a Agents) Logs(ctx context.Context, pod *corev1.Pod, o *corev1.PodLogOptions) (io.ReadCloser, error) {
	node, address, err := a.find(ctx, pod)
	if err != nil {
		return nil, err
	}
	config, err := a.TLS(node)
	if err != nil {
		return nil, fmt.Errorf("connect to the agent of node %s: %w", node, err)
	}
	path, query := containerlogs.RequestURL(pod, o)
	target := url.URL{Scheme: "https", Host: address, Path: path, RawQuery: query}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("ask the agent of node %s: %w", node, err)
	}
	// A connection is for one question: one that was kept would be found by its address,
	// which any node may say is its own. And the transport follows no redirections.
	within := cmp.Or(a.patience, patience)
	transport := &http.Transport{
		TLSClientConfig: config, DisableKeepAlives: true, DisableCompression: true,
		DialContext:         (&net.Dialer{Timeout: within}).DialContext,
		TLSHandshakeTimeout: within, ResponseHeaderTimeout: within, MaxResponseHeaderBytes: maxHeader,
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, unavailable(pod, fmt.Sprintf("does not answer at %s: %s", address, causeOf(err)))
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		return nil, refusal(pod, address, response)
	}
	return whole{response.Body}, nil
}

// find finds the node of a pod, and where its agent serves logs.
func (a Agents) find(ctx context.Context, pod *corev1.Pod) (node, address string, err error) {
	node = pod.Spec.NodeName
	obj, err := a.Nodes.Get(ctx, node, &metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", "", unavailable(pod, "cannot be found, for the node is not there")
	}
	if err != nil {
		return "", "", fmt.Errorf("read node %s: %w", node, err)
	}
	n, ok := obj.(*corev1.Node)
	if !ok {
		return "", "", fmt.Errorf("node %s is a %T", node, obj)
	}
	port := n.Status.DaemonEndpoints.KubeletEndpoint.Port
	if port < 1 || port > 65535 {
		return "", "", unavailable(pod, "runs in another process, and serves none")
	}
	for _, at := range n.Status.Addresses {
		if at.Type != corev1.NodeInternalIP {
			continue
		}
		if net.ParseIP(at.Address) == nil {
			return "", "", unavailable(pod, fmt.Sprintf("says that its address is %q, which is no IP address", at.Address))
		}
		return node, net.JoinHostPort(at.Address, strconv.Itoa(int(port))), nil
	}
	return "", "", unavailable(pod, "does not say at which address it serves them")
}

// unavailable is that the agent of a pod's node cannot be asked for logs.
func unavailable(pod *corev1.Pod, why string) error {
	return apierrors.NewServiceUnavailable(fmt.Sprintf("the logs of pod %s are with the agent of node %s, which %s", pod.Name, pod.Spec.NodeName, why))
}

// causeOf is what is wrong with a connection, without the addresses around it.
func causeOf(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return op.Err
	}
	return err
}

// refusal is the error that an agent has answered with. What it says of containers and of
// options is passed on; what it says of the server itself is a fault between the two.
func refusal(pod *corev1.Pod, address string, response *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(response.Body, maxRefusal))
	text := cmp.Or(strings.TrimSpace(string(body)), response.Status)
	switch {
	case err == nil && response.StatusCode == http.StatusNotFound:
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: text,
		}}
	case err == nil && response.StatusCode == http.StatusBadRequest:
		return apierrors.NewBadRequest(text)
	}
	return unavailable(pod, fmt.Sprintf("answers %d at %s: %s", response.StatusCode, address, text))
}

// whole is the body of an answer that tells whether it was read to its end.
type whole struct{ io.ReadCloser }

// Read implements io.Reader.
func (w whole) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = errCutOff
	}
	return n, err
}
