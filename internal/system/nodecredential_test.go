package system

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/coppice-dev/coppice/internal/apiserver/auth"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
	"github.com/coppice-dev/coppice/internal/testing/transcript"
)

// apiThatKeeps is a server that records the user of the last request.
func apiThatKeeps(t *testing.T, authority *auth.Authority) (url string, last *atomic.Pointer[x509.Certificate]) {
	t.Helper()
	pair, err := authority.Serving(nil)
	if err != nil {
		t.Fatal(err)
	}
	own, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	last = &atomic.Pointer[x509.Certificate]{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		last.Store(r.TLS.PeerCertificates[0])
		http.Error(w, "no such thing", http.StatusNotFound)
	}))
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAnyClientCert}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL, last
}

// An agent that runs beyond the expiry of its certificate uses the next one from its kubeconfig, as a
// client, also on existing connections, and as a server. Its identity stays the same.
func TestNodeCredentialIsRenewed(t *testing.T) {
	dir := t.TempDir()
	authority, err := auth.LoadAuthority(filepath.Join(dir, "pki"), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	url, last := apiThatKeeps(t, authority)
	path := filepath.Join(dir, "kubeconfig")
	write := func(who identity) {
		t.Helper()
		c := credentials{authority, url, who, "", []string{path}, slog.New(slog.DiscardHandler)}
		if _, err := c.issue(who.context); err != nil {
			t.Fatal(err)
		}
	}
	reread := func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", path) }
	write(nodeOutside("worker"))
	config, err := reread()
	if err != nil {
		t.Fatal(err)
	}
	log := &transcript.Transcript{}
	credential, err := loadCredential(NodeOptions{Config: config, Reread: reread, Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	client, err := credential.client(config)
	if err != nil {
		t.Fatal(err)
	}
	// asks returns the client's certificate, or nil if the agent serves with another one.
	asks := func() *x509.Certificate {
		_, _ = client.CoreV1().Nodes().Get(t.Context(), "worker", metav1.GetOptions{})
		own, err := credential.certificate()
		if shown := last.Load(); err == nil && shown != nil && shown.Equal(own.Leaf) {
			return shown
		}
		return nil
	}
	first := asks()
	if first == nil {
		t.Fatal("the server was shown another certificate")
	}

	clk := clocktesting.NewFakeClock(time.Now())
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		credential.keepFresh(ctx, clk)
	}()
	eventually.Holds(t, "it waits for the time to read", clk.HasWaiters)
	write(nodeOutside("worker"))
	clk.Step(rereadEvery)
	eventually.Holds(t, "the server is shown the new certificate", func() bool {
		shown := asks()
		return shown != nil && !shown.Equal(first)
	})
	second := asks()

	write(nodeOutside("other"))
	clk.Step(rereadEvery)
	eventually.Holds(t, "the other certificate is refused", func() bool { return strings.Contains(log.String(), "CN=system:node:other") })
	if shown := asks(); shown == nil || !shown.Equal(second) {
		t.Error("it has become another node")
	}
	stop()
	<-ended
}
