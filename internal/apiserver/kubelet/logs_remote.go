package kubelet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/node/kubeletapi"
)

const (
	// logTask describes the request in errors about the agent.
	logTask = "read the logs"
	// maxErrorBody is the number of bytes read from an error response.
	maxErrorBody = 1 << 10
	// maxHeader is the maximum size of the header of a response, in bytes.
	maxHeader = 16 << 10
)

// errDisconnected is the error for a log that ends early because the connection to the agent broke.
var errDisconnected = errors.New("the agent has disconnected")

// remoteLogs reads logs from the agents of nodes in other processes.
type remoteLogs struct {
	remote

	timeout time.Duration // also of the TLS handshake, and of the wait for the header; 0: agentTimeout
}

// Logs is like Nodes.Logs.
func (a remoteLogs) Logs(ctx context.Context, pod *corev1.Pod, o *corev1.PodLogOptions) (io.ReadCloser, error) {
	node := pod.Spec.NodeName
	address, err := a.find(ctx, pod, logTask)
	if err != nil {
		return nil, err
	}
	config, err := a.configuration(node)
	if err != nil {
		return nil, err
	}
	path, query := kubeletapi.LogURL(pod, o)
	target := url.URL{Scheme: "https", Host: address, Path: path, RawQuery: query}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("request logs from the agent of node %s: %w", node, err)
	}
	// Each connection serves one request: the transport would look up a kept-alive connection by its
	// address, which any node can put into its status. A RoundTripper does not follow redirects.
	timeout := cmp.Or(a.timeout, agentTimeout)
	transport := &http.Transport{
		TLSClientConfig: config, DisableKeepAlives: true, DisableCompression: true,
		DialContext:         (&net.Dialer{Timeout: timeout}).DialContext,
		TLSHandshakeTimeout: timeout, ResponseHeaderTimeout: timeout, MaxResponseHeaderBytes: maxHeader,
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, unavailable(pod, logTask, fmt.Sprintf("does not answer at %s: %s", address, causeOf(err)))
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		return nil, errorOf(pod, address, response)
	}
	return checkedBody{response.Body}, nil
}

// causeOf returns the cause of a connection error, without the addresses.
func causeOf(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return op.Err
	}
	return err
}

// errorOf returns the error of an agent's response. Errors about the container and the options
// are passed on to the client; any other is a failure between API server and agent.
func errorOf(pod *corev1.Pod, address string, response *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(response.Body, maxErrorBody))
	text := cmp.Or(strings.TrimSpace(string(body)), response.Status)
	switch {
	case err == nil && response.StatusCode == http.StatusNotFound:
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: text,
		}}
	case err == nil && response.StatusCode == http.StatusBadRequest:
		return apierrors.NewBadRequest(text)
	}
	return unavailable(pod, logTask, fmt.Sprintf("answers %d at %s: %s", response.StatusCode, address, text))
}

// checkedBody is a response body whose read errors are errDisconnected.
type checkedBody struct{ io.ReadCloser }

// Read implements io.Reader.
func (b checkedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = errDisconnected
	}
	return n, err
}
