package kubelet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/coppice-dev/coppice/internal/apiserver/auth"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// nodes is a registry of nodes.
type nodes map[string]*corev1.Node

func (n nodes) Get(_ context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	if node, ok := n[name]; ok {
		return node, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("nodes"), name)
}

// nodeAt returns a node with that address and port in its status.
func nodeAt(kind corev1.NodeAddressType, address string, port int) *corev1.Node {
	node := &corev1.Node{}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "worker"}, {Type: kind, Address: address}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(port)
	return node
}

// where returns a node with the address of a listener in its status.
func where(t *testing.T, listener net.Addr) *corev1.Node {
	t.Helper()
	host, port, err := net.SplitHostPort(listener.String())
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return nodeAt(corev1.NodeInternalIP, host, n)
}

func aPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "uid-1"},
		Spec:       corev1.PodSpec{NodeName: "worker", Containers: []corev1.Container{{Name: "app"}}},
	}
}

func newAuthority(t *testing.T) *auth.Authority {
	t.Helper()
	authority, err := auth.LoadAuthority(t.TempDir(), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return authority
}

// remoteLogsOf returns remoteLogs with the certificate of an authority and the node worker.
func remoteLogsOf(a *auth.Authority, worker *corev1.Node) remoteLogs {
	return remoteLogs{remote: remote{nodes{"worker": worker}, auth.NewLogReader(a).TLS}}
}

// listen opens a port until the test ends.
func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener
}

// impostor is a server with a certificate at the address in the status of a node. It counts the
// certificates and requests of clients.
type impostor struct {
	address      net.Addr
	certificates atomic.Int64
	requests     atomic.Int64
}

func newImpostor(t *testing.T, issue func() (auth.Pair, error)) *impostor {
	t.Helper()
	pair, err := issue()
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	i := &impostor{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		i.requests.Add(1)
		_, _ = io.WriteString(w, "forged\n")
	}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	server.TLS = &tls.Config{
		Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequestClientCert,
		VerifyPeerCertificate: func(certificates [][]byte, _ [][]*x509.Certificate) error {
			i.certificates.Add(int64(len(certificates)))
			return nil
		},
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	i.address = server.Listener.Addr()
	return i
}

// A server at the address in a node's status that does not have that node's certificate is not trusted, and
// receives neither the client's certificate nor a request.
func TestNodeWithoutItsCertificateIsNotTrusted(t *testing.T) {
	authority, other := newAuthority(t), newAuthority(t)
	worker := func(a *auth.Authority) func() (auth.Pair, error) {
		return func() (auth.Pair, error) { return a.Node("worker") }
	}
	for name, issue := range map[string]func() (auth.Pair, error){
		"another node":               func() (auth.Pair, error) { return authority.Node("other") },
		"a node of a longer name":    func() (auth.Pair, error) { return authority.Node("worker.other") },
		"the node, says another":     worker(other),
		"the API server":             func() (auth.Pair, error) { return authority.Serving(nil, "worker") },
		"an administrator":           authority.Admin,
		"a component of that name":   func() (auth.Pair, error) { return authority.Component(auth.NodeServingName("worker")) },
		"who reads logs, of another": func() (auth.Pair, error) { return other.Component(auth.LogReaderUser) },
	} {
		t.Run(name, func(t *testing.T) {
			i := newImpostor(t, issue)
			log, err := remoteLogsOf(authority, where(t, i.address)).Logs(t.Context(), aPod(), &corev1.PodLogOptions{Container: "app"})
			if err == nil {
				log.Close()
				t.Error("it is trusted")
			}
			isUnavailable(t, err, "node worker", "does not answer at "+i.address.String(), "certificate")
			if i.certificates.Load() != 0 || i.requests.Load() != 0 {
				t.Errorf("it got %d certificates and %d requests", i.certificates.Load(), i.requests.Load())
			}
		})
	}
	// The node itself is trusted, so the others were refused because of their certificates.
	i := newImpostor(t, worker(authority))
	log, err := remoteLogsOf(authority, where(t, i.address)).Logs(t.Context(), aPod(), &corev1.PodLogOptions{Container: "app"})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if i.certificates.Load() != 2 || i.requests.Load() != 1 { // the client's, and its issuer's
		t.Errorf("the node got %d certificates and %d requests", i.certificates.Load(), i.requests.Load())
	}
}

func isUnavailable(t *testing.T, err error, want ...string) {
	t.Helper()
	if !apierrors.IsServiceUnavailable(err) {
		t.Errorf("%v", err)
		return
	}
	for _, text := range want {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%v; want %q", err, text)
		}
	}
}

// When an agent cannot be reached, the error names the node and the address.
func TestNoAgent(t *testing.T) {
	closed := listen(t)
	closed.Close()
	silent := listen(t)
	for name, test := range map[string]struct {
		worker *corev1.Node
		want   string
	}{
		"a node that serves no logs":    {nodeAt(corev1.NodeInternalIP, "127.0.0.1", 0), "serves neither logs nor streams"},
		"an invalid port":               {nodeAt(corev1.NodeInternalIP, "127.0.0.1", 65536), "serves neither logs nor streams"},
		"no address":                    {nodeAt(corev1.NodeExternalIP, "127.0.0.1", 1), "has no address in its status"},
		"a host name":                   {nodeAt(corev1.NodeInternalIP, "localhost", 1), `address "localhost" in its status, which is not an IP address`},
		"a closed port":                 {where(t, closed.Addr()), "does not answer at " + closed.Addr().String() + ": connect: connection refused"},
		"an agent that does not answer": {where(t, silent.Addr()), "does not answer at " + silent.Addr().String() + ": net/http: TLS handshake timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			agents := remoteLogsOf(newAuthority(t), test.worker)
			agents.timeout = 2 * time.Second
			_, err := agents.Logs(t.Context(), aPod(), &corev1.PodLogOptions{Container: "app"})
			isUnavailable(t, err, "cannot read the logs of pod web from the agent of node worker", test.want)
		})
	}
	pod := aPod()
	pod.Spec.NodeName = "gone"
	_, err := remoteLogsOf(newAuthority(t), nil).Logs(t.Context(), pod, &corev1.PodLogOptions{Container: "app"})
	isUnavailable(t, err, "node gone", "the node does not exist")
}

// Errors about containers and options are passed on; others become ServiceUnavailable. No
// redirect is followed.
func TestRefusalsOfANodeArePassedOnOrUnavailable(t *testing.T) {
	authority := newAuthority(t)
	var redirected atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { redirected.Add(1) }))
	defer elsewhere.Close()
	for status, is := range map[int]func(error) bool{
		http.StatusNotFound:            apierrors.IsNotFound,
		http.StatusBadRequest:          apierrors.IsBadRequest,
		http.StatusUnauthorized:        apierrors.IsServiceUnavailable,
		http.StatusForbidden:           apierrors.IsServiceUnavailable,
		http.StatusFound:               apierrors.IsServiceUnavailable,
		http.StatusInternalServerError: apierrors.IsServiceUnavailable,
	} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			address := serve(t, authority, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", elsewhere.URL)
				http.Error(w, "no such thing", status)
			}))
			_, err := remoteLogsOf(authority, where(t, address)).Logs(t.Context(), aPod(), &corev1.PodLogOptions{Container: "app"})
			if !is(err) || !strings.Contains(err.Error(), "no such thing") {
				t.Errorf("%v", err)
			}
		})
	}
	if redirected.Load() != 0 {
		t.Error("a redirect was followed")
	}
}

// A connection is closed after its request: it must not serve a request to another node with
// the same address in its status.
func TestConnectionsAreNotKept(t *testing.T) {
	authority := newAuthority(t)
	closed := make(chan struct{}, 1)
	address := serve(t, authority, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "a line\n")
	}), func(s *http.Server) {
		s.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				closed <- struct{}{}
			}
		}
	})
	log, err := remoteLogsOf(authority, where(t, address)).Logs(t.Context(), aPod(), &corev1.PodLogOptions{Container: "app"})
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(log); err != nil || string(text) != "a line\n" {
		t.Errorf("%q, %v", text, err)
	}
	log.Close()
	select {
	case <-closed:
	case <-time.After(eventually.Patience):
		t.Error("the connection is not closed")
	}
}

// serve starts a server with the certificate of the node worker.
func serve(t *testing.T, authority *auth.Authority, handler http.Handler, change ...func(*http.Server)) net.Addr {
	t.Helper()
	pair, err := authority.Node("worker")
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(handler)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	for _, c := range change {
		c(server.Config)
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.Listener.Addr()
}
