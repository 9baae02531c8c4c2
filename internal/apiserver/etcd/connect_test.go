package etcd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coppice-dev/coppice/internal/testing/etcdcluster"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
	"github.com/coppice-dev/coppice/internal/testing/freeport"
)

func TestInvalidClusterIsRefused(t *testing.T) {
	for says, c := range map[string]Cluster{
		"no etcd server is named":      {},
		`"10.0.0.1:2379" is not a URL`: {Servers: []string{"10.0.0.1:2379"}},
		"some etcd servers are https":  {Servers: []string{"http://a:1", "https://b:1"}},
		"go together":                  {Servers: []string{"https://a:1"}, CertFile: "cert"},
		"that are not https":           {Servers: []string{"http://a:1"}, CAFile: "ca"},
	} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want %q", c, err, says)
		}
		if _, err := Connect(t.Context(), c); err == nil {
			t.Errorf("%+v: it connects", c)
		}
	}
}

// A cluster with TLS accepts clients with a certificate, and no others.
func TestClusterWithTLSRequiresAClientCertificate(t *testing.T) {
	server, client := certificates(t)
	// Instead of the system's CAs, which take long to load on some machines.
	t.Setenv("SSL_CERT_FILE", client.CertFile)
	t.Setenv("SSL_CERT_DIR", t.TempDir())
	urls := etcdcluster.Start(t, 1, &server).URLs()
	s := connect(t, Cluster{Servers: urls, CAFile: client.TrustedCAFile, CertFile: client.CertFile, KeyFile: client.KeyFile})
	must(t, s.Healthy(t.Context()))
	s.put(t, "/configmaps/team/a", "x")
	for name, c := range map[string]Cluster{
		"without a certificate": {Servers: urls, CAFile: client.TrustedCAFile},
		"without the authority": {Servers: urls, CertFile: client.CertFile, KeyFile: client.KeyFile},
	} {
		t.Run(name, func(t *testing.T) {
			isRefused(t, c, urls[0], "certificate")
		})
	}
	if _, err := Connect(t.Context(), Cluster{Servers: urls, CAFile: "/nowhere"}); err == nil || !strings.Contains(err.Error(), "/nowhere") {
		t.Errorf("%v, want the file that is missing", err)
	}
}

// The error for a missing server names it, within a bounded time.
func TestMissingServerIsNamed(t *testing.T) {
	nobody := "http://127.0.0.1:" + freeport.Find(t)
	isRefused(t, Cluster{Servers: []string{nobody}}, nobody+": connection refused")
}

// isRefused checks that a connection fails, and that the error is one line with these words. On a busy machine an attempt
// may end before the reason is known; then it tries again.
func isRefused(t *testing.T, c Cluster, words ...string) {
	t.Helper()
	eventually.Agrees(t, func() string {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		s, err := Connect(ctx, c)
		if err == nil {
			s.Close()
			t.Fatal("it connects")
		}
		isMissing := func(w string) bool { return !strings.Contains(err.Error(), w) }
		if slices.ContainsFunc(words, isMissing) || strings.Contains(err.Error(), "\n") {
			return fmt.Sprintf("%v, want one line with %q", err, words)
		}
		return ""
	})
}

// Control planes see each other's objects if they have the same prefix, and only then.
func TestControlPlanesSeeObjectsOfTheirPrefixOnly(t *testing.T) {
	urls := etcdcluster.Start(t, 1, nil).URLs()
	one := connect(t, Cluster{Servers: urls, Prefix: "one"})
	same := connect(t, Cluster{Servers: urls, Prefix: "/one"})
	other := connect(t, Cluster{Servers: urls, Prefix: "/other"})
	one.put(t, "/configmaps/team/a", "x")
	if got := same.keys(t); !slices.Equal(got, []string{"/configmaps/team/a"}) {
		t.Errorf("under the same prefix there is %v", got)
	}
	if got := other.keys(t); len(got) > 0 {
		t.Errorf("under another prefix there is %v", got)
	}
}

func TestServersAgreeOnTheFirstValue(t *testing.T) {
	urls := etcdcluster.Start(t, 1, nil).URLs()
	first, second := connect(t, Cluster{Servers: urls}), connect(t, Cluster{Servers: urls})
	for i, s := range []*Store{first, second, first} {
		value := []string{"one", "two", "three"}[i]
		if got, err := s.Agree(t.Context(), "what", value); err != nil || got != "one" {
			t.Errorf("%q %v, want what came first", got, err)
		}
	}
}

// Two of three members must be up. The error names the stopped members. Nothing is lost.
func TestTwoOfThreeMembersAreEnough(t *testing.T) {
	t.Parallel()
	c := etcdcluster.Start(t, 3, nil)
	urls := c.URLs()
	s := connect(t, Cluster{Servers: urls})
	write := func(name string) error {
		ctx, cancel := context.WithTimeout(t.Context(), statusTimeout)
		defer cancel()
		_, err := s.client.Put(ctx, s.prefix+"/"+name, "x")
		return err
	}
	eventually.Succeeds(t, func() error { return write("with three") }) // an election may come between

	c.Stop(0)
	eventually.Succeeds(t, func() error { return s.Healthy(t.Context()) })
	eventually.Succeeds(t, func() error { return write("with two") })

	c.Stop(1)
	eventually.Succeeds(t, func() error {
		err := s.Healthy(t.Context())
		for _, said := range []string{urls[0] + ": connection refused", urls[1] + ": connection refused", urls[2] + ": no leader"} {
			if err == nil || !strings.Contains(err.Error(), said) {
				return fmt.Errorf("%w, want %s", err, said)
			}
		}
		return nil
	})

	c.Restart(t, 1)
	eventually.Succeeds(t, func() error { return s.Healthy(t.Context()) })
	eventually.Succeeds(t, func() error { return write("with two again") })
	got := s.keys(t)
	for _, name := range []string{"with three", "with two", "with two again"} {
		if !slices.Contains(got, "/"+name) {
			t.Errorf("%q was acknowledged and is lost; there is %q", name, got)
		}
	}
}
