package cri

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

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	corev1 "k8s.io/api/core/v1"
	remote "k8s.io/cri-client/pkg"
	utilexec "k8s.io/utils/exec"

	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
)

const (
	// mostAnswer is the maximum number of bytes that are read of a response.
	mostAnswer = 10 << 10
	// mostRedirects is the maximum number of redirects that are followed.
	mostRedirects = 10
)

// loopback is the address of containers in the host network.
const loopback = "127.0.0.1"

// probe runs a probe of an instance.
func (r *Runtime) probe(ctx context.Context, of *corev1.Pod, s lifecycle.Probe) error {
	c := find(of, s.Container)
	if c == nil {
		return lifecycle.UndecidedError{}
	}
	p := probeOf(c, s.Kind)
	if p == nil {
		return lifecycle.UndecidedError{}
	}
	within := time.Duration(max(p.TimeoutSeconds, 1)) * time.Second
	alive, stop := r.whileAlive(ctx, subject{of, c, s.ID})
	defer stop()
	err := r.ask(alive, subject{of, c, s.ID}, p, within)
	if err != nil && alive.Err() != nil {
		return lifecycle.UndecidedError{} // the agent is stopping, or the instance has ended
	}
	if _, undecided := errors.AsType[lifecycle.UndecidedError](err); err != nil && !undecided {
		name := of.Namespace + "/" + of.Name
		r.failures.Info(ctx, "probe failed", name+"/"+s.Container, err, "pod", name, "container", s.Container, "probe", s.Kind.String())
	}
	return err
}

func probeOf(c *corev1.Container, kind lifecycle.ProbeKind) *corev1.Probe {
	switch kind {
	case lifecycle.Startup:
		return c.StartupProbe
	case lifecycle.Readiness:
		return c.ReadinessProbe
	case lifecycle.Liveness:
		return c.LivenessProbe
	}
	return nil
}

func (r *Runtime) ask(ctx context.Context, of subject, p *corev1.Probe, within time.Duration) error {
	if p.Exec != nil {
		return r.askByCommand(ctx, of.id, expandAll(p.Exec.Command, literals(of.container)), within)
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	switch {
	case p.HTTPGet != nil:
		return r.get(ctx, of, p.HTTPGet)
	case p.TCPSocket != nil:
		return r.dial(ctx, of, p.TCPSocket)
	case p.GRPC != nil:
		return r.check(ctx, of.pod, p.GRPC)
	}
	return errors.New("this kind of probe is not supported by this node")
}

// askByCommand runs the command of a probe. A command that the runtime cannot run says nothing
// about the container's health.
func (r *Runtime) askByCommand(ctx context.Context, id string, command []string, within time.Duration) error {
	stdout, stderr, err := r.containers.ExecSync(ctx, bare(id), command, within)
	exit, exited := errors.AsType[utilexec.ExitError](err)
	switch {
	case err == nil:
		return nil
	case exited:
		return fmt.Errorf("command exited with %d: %s", exit.ExitStatus(), said(stdout, stderr))
	case errors.Is(err, remote.ErrCommandTimedOut):
		return err
	}
	return lifecycle.UndecidedError{Err: err}
}

// address returns the address of a pod's containers.
func (r *Runtime) address(of *corev1.Pod) (string, error) {
	if of.Spec.HostNetwork {
		return loopback, nil
	}
	if ips := r.Observe(of.UID).Sandbox.IPs; len(ips) > 0 {
		return ips[0], nil
	}
	return "", lifecycle.UndecidedError{Err: fmt.Errorf("pod %s/%s has no address", of.Namespace, of.Name)}
}

// get probes by an HTTP request. A status from 200 to 399 is a success. Redirects to other hosts are not followed.
func (r *Runtime) get(ctx context.Context, of subject, g *corev1.HTTPGetAction) error {
	status, err := r.send(ctx, of, g, "probe")
	if err == nil && (status < http.StatusOK || status >= http.StatusBadRequest) {
		err = fmt.Errorf("HTTP probe failed with statuscode: %d", status)
	}
	return err
}

// send sends the HTTP request of a probe or a hook and returns the status of the response.
func (r *Runtime) send(ctx context.Context, of subject, g *corev1.HTTPGetAction, purpose string) (status int, err error) {
	address, err := r.address(of.pod)
	if err != nil {
		return 0, err
	}
	request, err := httpRequest(ctx, of.container, g, address, purpose)
	if err != nil {
		return 0, err
	}
	client := &http.Client{
		Transport: &http.Transport{
			DisableKeepAlives: true, DisableCompression: true, Proxy: nil,
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		},
		CheckRedirect: func(to *http.Request, via []*http.Request) error {
			switch {
			case to.URL.Hostname() != via[0].URL.Hostname():
				return http.ErrUseLastResponse
			case len(via) >= mostRedirects:
				return fmt.Errorf("stopped after %d redirects", mostRedirects)
			}
			return nil
		},
	}
	answer, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	_, _ = io.CopyN(io.Discard, answer.Body, mostAnswer) // so that the server can finish its response
	return answer.StatusCode, nil
}

// httpRequest returns the request of a probe or a hook.
func httpRequest(ctx context.Context, c *corev1.Container, g *corev1.HTTPGetAction, address, purpose string) (*http.Request, error) {
	port, err := portOf(c, g.Port)
	if err != nil {
		return nil, err
	}
	target, err := url.Parse(g.Path)
	if err != nil {
		target = &url.URL{Path: g.Path}
	}
	target.Scheme = strings.ToLower(cmp.Or(string(g.Scheme), string(corev1.URISchemeHTTP)))
	target.Host = net.JoinHostPort(cmp.Or(g.Host, address), strconv.Itoa(port))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	for _, h := range g.HTTPHeaders {
		request.Header.Add(h.Name, h.Value)
	}
	for name, value := range map[string]string{"User-Agent": "kube-" + purpose + "/coppice", "Accept": "*/*"} {
		if _, own := request.Header[name]; !own {
			request.Header.Set(name, value)
		}
	}
	if request.Header.Get("Accept") == "" {
		request.Header.Del("Accept")
	}
	if host := request.Header.Get("Host"); host != "" {
		request.Host = host
	}
	return request, nil
}

// dial succeeds if a TCP connection can be established.
func (r *Runtime) dial(ctx context.Context, of subject, t *corev1.TCPSocketAction) error {
	address, err := r.address(of.pod)
	if err != nil {
		return err
	}
	port, err := portOf(of.container, t.Port)
	if err != nil {
		return err
	}
	var d net.Dialer
	connection, err := d.DialContext(ctx, "tcp", net.JoinHostPort(cmp.Or(t.Host, address), strconv.Itoa(port)))
	if err != nil {
		return err
	}
	return connection.Close()
}

// check probes by the gRPC health checking protocol.
func (r *Runtime) check(ctx context.Context, of *corev1.Pod, g *corev1.GRPCAction) error {
	address, err := r.address(of)
	if err != nil {
		return err
	}
	target := net.JoinHostPort(address, strconv.Itoa(int(g.Port)))
	connection, err := grpc.NewClient("passthrough:///"+target, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		return err
	}
	defer connection.Close()
	question := &healthv1.HealthCheckRequest{}
	if g.Service != nil {
		question.Service = *g.Service
	}
	answer, err := healthv1.NewHealthClient(connection).Check(ctx, question)
	if err != nil {
		return err
	}
	if answer.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		return fmt.Errorf("service unhealthy (responded with %q)", answer.GetStatus())
	}
	return nil
}
