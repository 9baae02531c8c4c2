package podlogs

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
)

// patient is how long a test waits for what must happen.
const patient = 30 * time.Second

// nodes is a registry of nodes.
type nodes map[string]*corev1.Node

func (n nodes) Get(_ context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	if node, ok := n[name]; ok {
		return node, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("nodes"), name)
}

// at is a node that says that it serves there.
func at(kind corev1.NodeAddressType, address string, port int) *corev1.Node {
	node := &corev1.Node{}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "worker"}, {Type: kind, Address: address}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(port)
	return node
}

// where is a node that says that it serves where something listens.
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
	return at(corev1.NodeInternalIP, host, n)
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

// agentsOf asks with the certificate of an authority, for the node worker.
func agentsOf(a *auth.Authority, worker *corev1.Node) Agents {
	return Agents{Nodes: nodes{"worker": worker}, TLS: auth.NewLogReader(a).TLS}
}

// listen opens a port for as long as the test takes.
func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener
}

// impostor serves where the agent of a node should, with a certificate, and keeps what it
// is shown and asked.
type impostor struct {
	address net.Addr
	shown   atomic.Int64 // certificates of clients
	asked   atomic.Int64 // questions
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
		i.asked.Add(1)
		_, _ = io.WriteString(w, "forged\n")
	}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	server.TLS = &tls.Config{
		Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequestClientCert,
		VerifyPeerCertificate: func(certificates [][]byte, _ [][]*x509.Certificate) error {
			i.shown.Add(int64(len(certificates)))
			return nil
		},
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	i.address = server.Listener.Addr()
	return i
}

// Whoever serves where a node says that its agent is, and is not that node, is not
// believed, and does not come to see who has asked.
func TestImpostors(t *testing.T) {
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
			log, err := agentsOf(authority, where(t, i.address)).Logs(t.Context(), aPod(), &corev1.PodLogOptions{Container: "app"})
			if err == nil {
				log.Close()
				t.Error("it is believed")
			}
			isUnavailable(t, err, "node worker", "does not answer at "+i.address.String(), "certificate")
			if i.shown.Load() != 0 || i.asked.Load() != 0 {
				t.Errorf("it was shown %d certificates and asked %d questions", i.shown.Load(), i.asked.Load())
			}
		})
	}
	// One who is the node is believed: the others were refused for who they are.
	i := newImpostor(t, worker(authority))
	log, err := agentsOf(authority, where(t, i.address)).Logs(t.Context(), aPod(), &corev1.PodLogOptions{Container: "app"})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if i.shown.Load() != 1 || i.asked.Load() != 1 {
		t.Errorf("the node was shown %d certificates and asked %d questions", i.shown.Load(), i.asked.Load())
	}
}

func isUnavailable(t *testing.T, err error, says ...string) {
	t.Helper()
	if !apierrors.IsServiceUnavailable(err) {
		t.Errorf("%v", err)
		return
	}
	for _, text := range says {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%v; want %q", err, text)
		}
	}
}

// Where there is no agent to ask, the error names the node, and where it was looked for.
func TestNoAgent(t *testing.T) {
	closed := listen(t)
	closed.Close()
	silent := listen(t)
	for name, test := range map[string]struct {
		worker *corev1.Node
		says   string
	}{
		"a node that serves none":   {at(corev1.NodeInternalIP, "127.0.0.1", 0), "serves none"},
		"a port that is none":       {at(corev1.NodeInternalIP, "127.0.0.1", 65536), "serves none"},
		"no address":                {at(corev1.NodeExternalIP, "127.0.0.1", 1), "does not say at which address"},
		"an address that is a name": {at(corev1.NodeInternalIP, "localhost", 1), `"localhost", which is no IP address`},
		"a port that is closed":     {where(t, closed.Addr()), "does not answer at " + closed.Addr().String() + ": connect: connection refused"},
		"an agent that is silent":   {where(t, silent.Addr()), "does not answer at " + silent.Addr().String() + ": net/http: TLS handshake timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			agents := agentsOf(newAuthority(t), test.worker)
			agents.patience = 2 * time.Second
			_, err := agents.Logs(t.Context(), aPod(), &corev1.PodLogOptions{Container: "app"})
			isUnavailable(t, err, "the logs of pod web are with the agent of node worker", test.says)
		})
	}
	pod := aPod()
	pod.Spec.NodeName = "gone"
	_, err := agentsOf(newAuthority(t), nil).Logs(t.Context(), pod, &corev1.PodLogOptions{Container: "app"})
	isUnavailable(t, err, "node gone", "the node is not there")
}

// What an agent says of containers and options is passed on; anything else that is no log
// is a fault of the agent's, and no redirection is followed.
func TestRefusals(t *testing.T) {
	authority := newAuthority(t)
	var strayed atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { strayed.Add(1) }))
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
			_, err := agentsOf(authority, where(t, address)).Logs(t.Context(), aPod(), &corev1.PodLogOptions{Container: "app"})
			if !is(err) || !strings.Contains(err.Error(), "no such thing") {
				t.Errorf("%v", err)
			}
		})
	}
	if strayed.Load() != 0 {
		t.Error("a redirection was followed")
	}
}

// A connection ends with the question that it was made for: it must not answer one about
// another node that says it is at that address.
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
	log, err := agentsOf(authority, where(t, address)).Logs(t.Context(), aPod(), &corev1.PodLogOptions{Container: "app"})
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(log); err != nil || string(text) != "a line\n" {
		t.Errorf("%q, %v", text, err)
	}
	log.Close()
	select {
	case <-closed:
	case <-time.After(patient):
		t.Error("the connection is kept")
	}
}

// serve serves as the agent of the node worker.
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
