package apiserver_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/discovery"

	"github.com/coppice-dev/coppice/internal/apiserver"
	"github.com/coppice-dev/coppice/internal/apiserver/auth"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/accesscontrol"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
	"github.com/coppice-dev/coppice/internal/tools/version"
)

func TestNewRefuses(t *testing.T) {
	s := sharedServer(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	socket, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(t.TempDir(), "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	for says, change := range map[string]func(*apiserver.Config){
		"are required":  func(c *apiserver.Config) { c.Listener = nil },
		"required":      func(c *apiserver.Config) { c.Store = nil },
		"Authority":     func(c *apiserver.Config) { c.Authority = nil },
		"Now":           func(c *apiserver.Config) { c.Now = nil },
		`version "new"`: func(c *apiserver.Config) { c.Version = "new" },
		"not on TCP":    func(c *apiserver.Config) { c.Listener = socket },
	} {
		c := apiserver.Config{Listener: listener, Store: s.store, Authority: s.authority, Version: version.Kubernetes(), Now: time.Now, Features: apiserver.AllFeatures()}
		change(&c)
		if _, err := apiserver.New(t.Context(), c); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

// A server stops although a client watches, and ends the watch. TestMain checks that it leaves nothing running.
func TestStartAndStop(t *testing.T) {
	s := startServer(t, nil)
	created := s.configMaps(t, "default").create("a")
	events := s.configMaps(t, "default").watch(created.GetResourceVersion())
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	if _, open := <-events; open {
		t.Error("the watch goes on")
	}
	if _, err := net.DialTimeout("tcp", strings.TrimPrefix(s.url, "https://"), time.Second); err == nil {
		t.Error("it still listens")
	}
}

// A missing serving certificate is written: clients that trust the file trust the server, and a later
// server can use it.
func TestServingCertificateIsWritten(t *testing.T) {
	dir := t.TempDir()
	files := accesscontrol.External{ServingCert: filepath.Join(dir, "new", "apiserver.crt"), ServingKey: filepath.Join(dir, "new", "apiserver.key"), ServingAbsent: true}
	s := startServer(t, func(c *apiserver.Config) { c.External = files })
	trusted, err := os.ReadFile(files.ServingCert)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(trusted)
	client := s.outside(t, func(c *tls.Config) { c.RootCAs = roots })
	if got := s.status(t, client, "/readyz"); got != http.StatusOK {
		t.Errorf("/readyz answers %d to who trusts the file", got)
	}
	if _, err := tls.LoadX509KeyPair(files.ServingCert, files.ServingKey); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(files.ServingKey); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key: %v, %v; want it to be its owner's alone", info, err)
	}
}

// outside returns a client over the network with these certificates.
func (s *server) outside(t *testing.T, change func(*tls.Config), certificates ...auth.Pair) *http.Client {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.authority.Certificate())
	config := &tls.Config{RootCAs: roots}
	for _, c := range certificates {
		pair, err := tls.X509KeyPair(c.Certificate, c.Key)
		if err != nil {
			t.Fatal(err)
		}
		config.Certificates = append(config.Certificates, pair)
	}
	if change != nil {
		change(config)
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func (s *server) status(t *testing.T, c *http.Client, path string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, s.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := c.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

func TestWhoMayDoWhat(t *testing.T) {
	s := sharedServer(t)
	admin, err := s.authority.Admin()
	if err != nil {
		t.Fatal(err)
	}
	elsewhere, err := auth.LoadAuthority(t.TempDir(), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := elsewhere.Admin()
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		client       *http.Client
		health, data int
	}{
		"administrator":       {s.outside(t, nil, admin), http.StatusOK, http.StatusOK},
		"nobody":              {s.outside(t, nil), http.StatusOK, http.StatusUnauthorized},
		"another authority's": {s.outside(t, func(c *tls.Config) { always(c, foreign) }), http.StatusUnauthorized, http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			if got := s.status(t, test.client, "/readyz"); got != test.health {
				t.Errorf("/readyz: %d, want %d", got, test.health)
			}
			for _, path := range []string{"/api/v1/namespaces", "/version", "/metrics"} {
				if got := s.status(t, test.client, path); got != test.data {
					t.Errorf("%s: %d, want %d", path, got, test.data)
				}
			}
		})
	}
}

// always makes a client present a certificate even to a server that names other authorities.
func always(c *tls.Config, p auth.Pair) {
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.X509KeyPair(p.Certificate, p.Key)
		return &pair, err
	}
}

func TestOldTLSIsRefused(t *testing.T) {
	s := sharedServer(t)
	c := s.outside(t, func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 })
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, s.url+"/readyz", nil)
	if err != nil {
		t.Fatal(err)
	}
	if response, err := c.Do(request); err == nil {
		response.Body.Close()
		t.Error("TLS 1.2 is good enough")
	}
}

func TestVersionIsThatOfKubernetes(t *testing.T) {
	client, err := discovery.NewDiscoveryClientForConfig(sharedServer(t).config)
	if err != nil {
		t.Fatal(err)
	}
	served, err := client.ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if served.GitVersion != version.Kubernetes() || served.Major+"."+served.Minor != lastMinor() {
		t.Errorf("%+v, want %s", served, version.Kubernetes())
	}
}

// Aggregated and unaggregated discovery contain built-in and custom resources, the latter until their
// definition is deleted.
func TestDiscoveryHasBuiltInAndCustomResources(t *testing.T) {
	s := sharedServer(t)
	name, _ := s.things(t)
	_, group, _ := strings.Cut(name, ".")
	for how, legacy := range map[string]bool{"aggregated": false, "unaggregated": true} {
		t.Run(how, func(t *testing.T) {
			has := func(group string) bool {
				client, err := discovery.NewDiscoveryClientForConfig(s.config)
				if err != nil {
					t.Fatal(err)
				}
				client.UseLegacyDiscovery = legacy
				groups, err := client.ServerGroups()
				if err != nil {
					t.Fatal(err)
				}
				for _, g := range groups.Groups {
					if g.Name == group {
						return true
					}
				}
				return false
			}
			for _, builtin := range []string{"", "apps", "batch", "apiextensions.k8s.io"} {
				if !has(builtin) {
					t.Errorf("group %q is missing", builtin)
				}
			}
			eventually.Agrees(t, func() string {
				if !has(group) {
					return "the group of the custom resource is missing"
				}
				return ""
			})
		})
	}
	s.definitions(t).mustRemove(name, nil)
	eventually.Agrees(t, func() string {
		list, err := s.client(t).send(http.MethodGet, "/apis", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		groups, _ := list.Object["groups"].([]any)
		if slices.ContainsFunc(groups, func(g any) bool { return g.(map[string]any)["name"] == group }) {
			return "the group is still listed"
		}
		return ""
	})
}
