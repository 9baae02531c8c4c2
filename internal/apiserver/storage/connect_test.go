package storage

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

func TestClusterThatCannotBe(t *testing.T) {
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
func TestConnectSecurely(t *testing.T) {
	server, client := certificates(t)
	// Instead of the system's CAs, which take long to load on some machines.
	t.Setenv("SSL_CERT_FILE", client.CertFile)
	t.Setenv("SSL_CERT_DIR", t.TempDir())
	urls := startCluster(t, 1, &server).urls()
	s := connect(t, Cluster{Servers: urls, CAFile: client.TrustedCAFile, CertFile: client.CertFile, KeyFile: client.KeyFile})
	must(t, s.Healthy(t.Context()))
	must(t, s.configMapStorage(t).create("team", "a"))
	for name, c := range map[string]Cluster{
		"without a certificate": {Servers: urls, CAFile: client.TrustedCAFile},
		"without the authority": {Servers: urls, CertFile: client.CertFile, KeyFile: client.KeyFile},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			defer cancel()
			s, err := Connect(ctx, c)
			if err == nil {
				s.Close()
				t.Fatal("it connects")
			}
			if !strings.Contains(err.Error(), urls[0]) || !strings.Contains(err.Error(), "certificate") || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v, want one line with the server and what is wrong with the certificate", err)
			}
		})
	}
	if _, err := Connect(t.Context(), Cluster{Servers: urls, CAFile: "/nowhere"}); err == nil || !strings.Contains(err.Error(), "/nowhere") {
		t.Errorf("%v, want the file that is missing", err)
	}
}

// The error for a missing server names it, within a bounded time.
func TestConnectToNobody(t *testing.T) {
	nobody := freeURL(t, "http")
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	s, err := Connect(ctx, Cluster{Servers: []string{nobody.String()}})
	if err == nil {
		s.Close()
		t.Fatal("it connects")
	}
	if !strings.Contains(err.Error(), nobody.String()+": connection refused") || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v, want one line that names the server and says why", err)
	}
}

// Control planes see each other's objects if they have the same prefix, and only then.
func TestControlPlanesSeeObjectsOfTheirPrefixOnly(t *testing.T) {
	urls := startCluster(t, 1, nil).urls()
	one := connect(t, Cluster{Servers: urls, Prefix: "one"})
	same := connect(t, Cluster{Servers: urls, Prefix: "/one"})
	other := connect(t, Cluster{Servers: urls, Prefix: "/other"})
	must(t, one.configMapStorage(t).create("team", "a"))
	if got := same.configMapStorage(t).names(t, same, "team"); !slices.Equal(got, []string{"a"}) {
		t.Errorf("under the same prefix there is %v", got)
	}
	if got := other.configMapStorage(t).names(t, other, "team"); len(got) > 0 {
		t.Errorf("under another prefix there is %v", got)
	}
}

func TestAgree(t *testing.T) {
	urls := startCluster(t, 1, nil).urls()
	first, second := connect(t, Cluster{Servers: urls}), connect(t, Cluster{Servers: urls})
	for i, s := range []*Store{first, second, first} {
		value := []string{"one", "two", "three"}[i]
		if got, err := s.Agree(t.Context(), "what", value); err != nil || got != "one" {
			t.Errorf("%q %v, want what came first", got, err)
		}
	}
}

// R21 between servers: after one server has seen a namespace active, another server marks it. From
// then on the first server rejects creations in it.
func TestR21_AcrossServers(t *testing.T) {
	urls := startCluster(t, 1, nil).urls()
	one, other := connect(t, Cluster{Servers: urls}), connect(t, Cluster{Servers: urls})
	must(t, one.namespaceStorage(t).create("", "team"))
	contents := one.configMapStorage(t)
	must(t, contents.create("team", "a"))
	must(t, other.namespaceStorage(t).change("", "team", mark))
	if err := contents.create("team", "late"); !apierrors.IsForbidden(err) {
		t.Errorf("%v, want that it is refused", err)
	}
}

// Two of three members must be up. The error names a stopped member, and nothing is lost. Without a
// second one, requests fail in a bounded time with an error that has the reason; with it they
// succeed again.
func TestTwoOfThreeMembersAreEnough(t *testing.T) {
	c := startCluster(t, 3, nil)
	urls := c.urls()
	s := connect(t, Cluster{Servers: urls})
	contents := s.configMapStorage(t)
	must(t, contents.create("team", "with three"))

	c.stop(0)
	eventually.Succeeds(t, func() error { return s.Healthy(t.Context()) })
	eventually.Succeeds(t, func() error { return contents.create("team", "with two") })

	c.stop(1)
	eventually.Succeeds(t, func() error {
		err := s.Healthy(t.Context())
		for _, said := range []string{urls[0] + ": connection refused", urls[1] + ": connection refused", urls[2] + ": no leader"} {
			if err == nil || !strings.Contains(err.Error(), said) {
				return unlike{err, said}
			}
		}
		return nil
	})
	err := contents.create("team", "with one")
	if !apierrors.IsTimeout(err) || !strings.Contains(err.Error(), "may or may not have been carried out") {
		t.Errorf("a write: %v", err)
	}

	c.start(t, 1)
	eventually.Succeeds(t, func() error { return s.Healthy(t.Context()) })
	eventually.Succeeds(t, func() error { return contents.create("team", "with two again") })
	got := contents.names(t, s, "team")
	for _, name := range []string{"with three", "with two", "with two again"} {
		if !slices.Contains(got, name) {
			t.Errorf("%q was acknowledged and is lost; there is %q", name, got)
		}
	}
}

type unlike struct {
	error
	want string
}

func (u unlike) Error() string {
	if u.error == nil {
		return "no error, want " + u.want
	}
	return u.error.Error() + ", want " + u.want
}
