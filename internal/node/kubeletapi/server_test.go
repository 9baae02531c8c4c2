package kubeletapi

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/apiserver/auth"
)

// patient bounds the time that a test waits for an event that must happen.
const patient = 30 * time.Second

func aPod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "uid-1"}}
}

// anAgent is an Agent with the pod of aPod, whose container app has a log.
type anAgent struct {
	log    func(ctx context.Context) io.ReadCloser
	broken error
	asked  atomic.Int64 // the number of requests so far
	o      atomic.Pointer[corev1.PodLogOptions]

	streams string // the URL of all streams
	stream  atomic.Pointer[StreamRequest]
}

func (a *anAgent) Pod(namespace, name string) (*corev1.Pod, error) {
	a.asked.Add(1)
	if pod := aPod(); namespace == pod.Namespace && name == pod.Name {
		return pod, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
}

// Pods returns aPod.
func (a *anAgent) Pods() ([]*corev1.Pod, error) {
	if a.broken != nil {
		return nil, a.broken
	}
	return []*corev1.Pod{aPod()}, nil
}

func (a *anAgent) Logs(ctx context.Context, pod *corev1.Pod, o *corev1.PodLogOptions) (io.ReadCloser, error) {
	a.o.Store(o)
	switch {
	case a.broken != nil:
		return nil, a.broken
	case o.Container != "app":
		return nil, apierrors.NewNotFound(corev1.Resource("containers"), pod.Name)
	case a.log != nil:
		return a.log(ctx), nil
	}
	return io.NopCloser(strings.NewReader("one line\n")), nil
}

// Stream returns the URL of anAgent.streams.
func (a *anAgent) Stream(_ context.Context, _ *corev1.Pod, r StreamRequest) (*url.URL, error) {
	a.stream.Store(&r)
	if r.Kind != PortForward && r.Container != "app" {
		return nil, apierrors.NewNotFound(corev1.Resource("containers"), r.Container)
	}
	return url.Parse(a.streams)
}

// site is a server of the node worker, and the CA that both sides trust.
type site struct {
	authority *auth.Authority
	address   string
	server    *Server
	ends      context.CancelFunc
	ended     chan error
}

func newAuthority(t *testing.T) *auth.Authority {
	t.Helper()
	authority, err := auth.LoadAuthority(t.TempDir(), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return authority
}

func certificateOf(t *testing.T, issue func() (auth.Pair, error)) tls.Certificate {
	t.Helper()
	pair, err := issue()
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

func poolOf(a *auth.Authority) *x509.CertPool {
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(a.Certificate())
	return authorities
}

// serve serves the logs of an agent. change, if not nil, changes the server.
func serve(t *testing.T, agent Agent, change func(*Server)) *site {
	t.Helper()
	s := &site{authority: newAuthority(t), ended: make(chan error, 1)}
	worker := certificateOf(t, func() (auth.Pair, error) { return s.authority.Node("worker") })
	s.server = &Server{
		Agent: agent, Check: auth.CheckLogReader, Authorities: poolOf(s.authority), Log: slog.New(slog.DiscardHandler),
		Certificate: func() (*tls.Certificate, error) { return &worker, nil },
	}
	if change != nil {
		change(s.server)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.address = listener.Addr().String()
	ctx, ends := context.WithCancel(t.Context())
	s.ends = ends
	go func() { s.ended <- s.server.Serve(ctx, listener) }()
	t.Cleanup(s.end(t))
	return s
}

func (s *site) end(t *testing.T) func() {
	return func() {
		s.ends()
		select {
		case err := <-s.ended:
			s.ended <- err
			if err != nil {
				t.Error(err)
			}
		case <-time.After(patient):
			t.Error("the server did not stop")
		}
	}
}

// get sends a request as the API server does. change, if not nil, modifies the client's
// configuration.
func (s *site) get(t *testing.T, target string, change func(*tls.Config)) (*http.Response, error) {
	t.Helper()
	config, err := auth.NewLogReader(s.authority).TLS("worker")
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(config)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}, Timeout: patient}
	return client.Get("https://" + s.address + target)
}

// TestStrangersAreNotAnswered checks that only the API server gets a response: a client that cannot present its
// certificate cannot even send a request.
func TestStrangersAreNotAnswered(t *testing.T) {
	agent := &anAgent{}
	s := serve(t, agent, nil)
	other := newAuthority(t)
	show := func(issue func() (auth.Pair, error)) func(*tls.Config) {
		certificate := certificateOf(t, issue)
		return func(c *tls.Config) {
			// The client presents it whether or not the server announces that it would accept it.
			c.Certificates, c.GetClientCertificate = nil, func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certificate, nil }
		}
	}
	for name, change := range map[string]func(*tls.Config){
		"no certificate":       func(c *tls.Config) { c.Certificates = nil },
		"the name, by another": show(func() (auth.Pair, error) { return other.Component(auth.LogReaderUser) }),
		// Certificates that a user with the permission to approve requests for client certificates can get signed.
		"the name, for a user":   show(func() (auth.Pair, error) { return s.authority.Component(auth.LogReaderUser) }),
		"the issuer, for a user": show(func() (auth.Pair, error) { return s.authority.Component(auth.LogReaderIssuer) }),
		"the name, with the issuer of another certificate": func(c *tls.Config) {
			own := certificateOf(t, func() (auth.Pair, error) { return s.authority.Component(auth.LogReaderUser) })
			own.Certificate = append(own.Certificate, c.Certificates[0].Certificate[1:]...)
			c.Certificates, c.GetClientCertificate = nil, func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &own, nil }
		},
		"the name, signed by who has the name of the issuer": func(c *tls.Config) {
			own := signedByUser(t, s.authority)
			c.Certificates, c.GetClientCertificate = nil, func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &own, nil }
		},
		"an administrator":           show(s.authority.Admin),
		"another component":          show(func() (auth.Pair, error) { return s.authority.Component("system:coppice:collector") }),
		"the node itself":            show(func() (auth.Pair, error) { return s.authority.Node("worker") }),
		"a node of the name":         show(func() (auth.Pair, error) { return s.authority.Node(auth.LogReaderUser) }),
		"the API server as a server": show(func() (auth.Pair, error) { return s.authority.Serving(nil) }),
		"TLS 1.2":                    func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS12, tls.VersionTLS12 },
	} {
		t.Run(name, func(t *testing.T) {
			if response, err := s.get(t, "/containerLogs/default/web/app", change); err == nil {
				t.Errorf("got a response: %s", response.Status)
			}
		})
	}
	if n := agent.asked.Load(); n != 0 {
		t.Errorf("%d requests of other clients reached the agent", n)
	}
	response, err := s.get(t, "/containerLogs/default/web/app", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if text, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusOK || string(text) != "one line\n" {
		t.Errorf("response to the API server: %s %q, %v", response.Status, text, err)
	}
}

// signedByUser returns a certificate of LogReaderUser, signed by a user who has the name of the issuer.
func signedByUser(t *testing.T, authority *auth.Authority) tls.Certificate {
	t.Helper()
	issuer := certificateOf(t, func() (auth.Pair, error) { return authority.Component(auth.LogReaderIssuer) })
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: auth.LogReaderUser}, NotBefore: issuer.Leaf.NotBefore, NotAfter: issuer.Leaf.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer.Leaf, key.Public(), issuer.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der, issuer.Certificate[0]}, PrivateKey: key}
}

// TestServerWithoutClient checks that a server without a client name or authorities responds to no client: neither to
// one with a certificate of a system CA, nor to one without a name.
func TestServerWithoutClient(t *testing.T) {
	nameless := func(a *auth.Authority) func() (auth.Pair, error) {
		return func() (auth.Pair, error) { return a.Component("") }
	}
	for name, change := range map[string]func(*Server){
		"no authority": func(s *Server) { s.Authorities = nil },
		"no client":    func(s *Server) { s.Check = nil },
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, &anAgent{}, change)
			if s.server.tls().ClientCAs == nil {
				t.Error("it trusts the system's CAs")
			}
			reader, err := auth.NewLogReader(s.authority).TLS("worker")
			if err != nil {
				t.Fatal(err)
			}
			for _, certificate := range []tls.Certificate{certificateOf(t, nameless(s.authority)), reader.Certificates[0]} {
				response, err := s.get(t, "/containerLogs/default/web/app", func(c *tls.Config) { c.Certificates = []tls.Certificate{certificate} })
				if err == nil {
					t.Errorf("%s got a response: %s", certificate.Leaf.Subject, response.Status)
				}
			}
		})
	}
}

// TestMissingPodsAndContainersAreReportedAsMissing checks that missing pods and containers are reported as missing, and that options are parsed like the
// API's.
func TestMissingPodsAndContainersAreReportedAsMissing(t *testing.T) {
	agent := &anAgent{}
	s := serve(t, agent, nil)
	broken := serve(t, &anAgent{broken: errors.New("no runtime")}, nil)
	early := serve(t, &anAgent{broken: apierrors.NewServiceUnavailable("not yet")}, nil)
	for name, test := range map[string]struct {
		site   *site
		target string
		status int
		says   string
	}{
		"the pod":            {s, "/containerLogs/default/web/app?uid=uid-1", http.StatusOK, "one line"},
		"another pod":        {s, "/containerLogs/default/other/app", http.StatusNotFound, `pods "other" not found`},
		"another namespace":  {s, "/containerLogs/kube-system/web/app", http.StatusNotFound, `pods "web" not found`},
		"an earlier pod":     {s, "/containerLogs/default/web/app?uid=uid-0", http.StatusNotFound, `pods "web" not found`},
		"another container":  {s, "/containerLogs/default/web/other", http.StatusNotFound, "not found"},
		"a container by":     {s, "/containerLogs/default/web/app?container=other", http.StatusOK, "one line"},
		"no container":       {s, "/containerLogs/default/web", http.StatusNotFound, ""},
		"a bad option":       {s, "/containerLogs/default/web/app?tailLines=-1", http.StatusBadRequest, "tailLines"},
		"another path":       {s, "/podz", http.StatusNotFound, ""},
		"health":             {s, "/healthz", http.StatusOK, "ok"},
		"all pods":           {s, "/pods", http.StatusOK, `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[{"metadata":{"name":"web","namespace":"default"`},
		"no pods yet":        {early, "/pods", http.StatusServiceUnavailable, "not yet"},
		"out of order":       {broken, "/containerLogs/default/web/app", http.StatusInternalServerError, "no runtime"},
		"not yet to be told": {early, "/containerLogs/default/web/app", http.StatusServiceUnavailable, "not yet"},
	} {
		t.Run(name, func(t *testing.T) {
			response, err := test.site.get(t, test.target, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			if text, err := io.ReadAll(response.Body); err != nil || response.StatusCode != test.status || !strings.Contains(string(text), test.says) {
				t.Errorf("%s %q, %v; want %d and %q", response.Status, text, err, test.status, test.says)
			}
		})
	}
	response, err := s.get(t, "/containerLogs/default/web/app?follow=true&previous=true&tailLines=3&limitBytes=9&timestamps=true&sinceSeconds=4", nil)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if o := agent.o.Load(); o.Container != "app" || !o.Follow || !o.Previous || !o.Timestamps || *o.TailLines != 3 || *o.LimitBytes != 9 || *o.SinceSeconds != 4 {
		t.Errorf("%+v", o)
	}
}

// followed is a log that goes on until its reader has gone.
func followed(lines chan string, gone chan<- struct{}) func(context.Context) io.ReadCloser {
	return func(ctx context.Context) io.ReadCloser {
		reader, writer := io.Pipe()
		go func() {
			defer close(gone)
			for {
				select {
				case line := <-lines:
					_, _ = io.WriteString(writer, line)
				case <-ctx.Done():
					writer.CloseWithError(ctx.Err())
					return
				}
			}
		}()
		return reader
	}
}

// TestFollowerGetsEachLineWhenItIsWritten checks that a client that follows a log gets the response header before the first line, and each line when
// it is written. The log ends when the client goes away, or the server stops.
func TestFollowerGetsEachLineWhenItIsWritten(t *testing.T) {
	for name, end := range map[string]func(*site, *http.Response){
		"the client goes": func(_ *site, r *http.Response) { r.Body.Close() },
		"the server ends": func(s *site, _ *http.Response) { s.ends() },
	} {
		t.Run(name, func(t *testing.T) {
			lines, gone := make(chan string), make(chan struct{})
			s := serve(t, &anAgent{log: followed(lines, gone)}, nil)
			response, err := s.get(t, "/containerLogs/default/web/app?follow=true", nil)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			body := bufio.NewReader(response.Body)
			for _, line := range []string{"a\n", "b\n"} {
				lines <- line
				if got, err := body.ReadString('\n'); err != nil || got != line {
					t.Fatalf("%q, %v; want %q", got, err, line)
				}
			}
			end(s, response)
			select {
			case <-gone:
			case <-time.After(patient):
				t.Error("the log is still being followed")
			}
		})
	}
}

// TestRenewedCertificate checks that the next connection uses a renewed certificate.
func TestRenewedCertificate(t *testing.T) {
	var current atomic.Pointer[tls.Certificate]
	s := serve(t, &anAgent{}, func(s *Server) {
		s.Certificate = func() (*tls.Certificate, error) { return current.Load(), nil }
	})
	for range 2 {
		certificate := certificateOf(t, func() (auth.Pair, error) { return s.authority.Node("worker") })
		current.Store(&certificate)
		response, err := s.get(t, "/containerLogs/default/web/app", nil)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if shown := response.TLS.PeerCertificates[0]; !shown.Equal(certificate.Leaf) {
			t.Errorf("shown is %s, and not %s", shown.SerialNumber, certificate.Leaf.SerialNumber)
		}
	}
}
