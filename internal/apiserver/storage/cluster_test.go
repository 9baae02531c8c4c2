package storage

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/coppice-dev/coppice/internal/apiserver/auth"
	"github.com/coppice-dev/coppice/internal/testing/freeport"
)

// stores returns the ways to keep objects: in this process, and in an etcd cluster.
func stores() map[string]func(testing.TB) *Store {
	return map[string]func(testing.TB) *Store{
		"in process": open,
		"elsewhere": func(t testing.TB) *Store {
			return connect(t, Cluster{Servers: startCluster(t, 1, nil).urls()})
		},
	}
}

func connect(t testing.TB, c Cluster) *Store {
	t.Helper()
	s, err := Connect(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// cluster is an etcd cluster with sockets, like a cluster in other processes.
type cluster struct {
	configs []*embed.Config
	members []*embed.Etcd // nil when stopped
}

// startCluster starts n members. secure, if not nil, configures their TLS.
func startCluster(t testing.TB, n int, secure *transport.TLSInfo) *cluster {
	t.Helper()
	c := &cluster{members: make([]*embed.Etcd, n)}
	var initial []string
	for i := range n {
		config := embed.NewConfig()
		config.Name = fmt.Sprint("m", i)
		config.Dir = t.TempDir()
		config.TickMs, config.ElectionMs = 10, 100
		config.UnsafeNoFsync = true
		config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
		client, peer := freeURL(t, "http"), freeURL(t, "http")
		if secure != nil {
			client.Scheme, config.ClientTLSInfo, config.EnableGRPCGateway = "https", *secure, false
		}
		config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
		config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
		initial = append(initial, config.Name+"="+peer.String())
		c.configs = append(c.configs, config)
	}
	for _, config := range c.configs {
		config.InitialCluster = strings.Join(initial, ",")
	}
	t.Cleanup(func() {
		for i := range c.members {
			c.stop(i)
		}
	})
	for i := range n {
		c.start(t, i)
	}
	for _, m := range c.members {
		select {
		case <-m.Server.ReadyNotify():
		case <-time.After(2 * time.Minute):
			t.Fatal("a member is not ready")
		}
	}
	return c
}

func (c *cluster) start(t testing.TB, i int) {
	t.Helper()
	member, err := embed.StartEtcd(c.configs[i])
	if err != nil {
		t.Fatal(err)
	}
	c.members[i] = member
}

func (c *cluster) stop(i int) {
	if c.members[i] != nil {
		c.members[i].Close()
		c.members[i] = nil
	}
}

func (c *cluster) urls() []string {
	var urls []string
	for _, config := range c.configs {
		urls = append(urls, config.ListenClientUrls[0].String())
	}
	return urls
}

func freeURL(t testing.TB, scheme string) url.URL {
	t.Helper()
	return url.URL{Scheme: scheme, Host: "127.0.0.1:" + freeport.Find(t)}
}

// certificates creates the certificates of the members and of their clients.
func certificates(t testing.TB) (server, client transport.TLSInfo) {
	t.Helper()
	dir := t.TempDir()
	authority, err := auth.LoadAuthority(dir, time.Now)
	must(t, err)
	serving, err := authority.Serving(nil)
	must(t, err)
	admin, err := authority.Admin()
	must(t, err)
	files := func(name string, pair auth.Pair) transport.TLSInfo {
		info := transport.TLSInfo{
			TrustedCAFile: filepath.Join(dir, "ca.crt"), ClientCertAuth: true,
			CertFile: filepath.Join(dir, name+".crt"), KeyFile: filepath.Join(dir, name+".key"),
		}
		must(t, os.WriteFile(info.CertFile, pair.Certificate, 0o600))
		must(t, os.WriteFile(info.KeyFile, pair.Key, 0o600))
		return info
	}
	return files("serving", serving), files("admin", admin)
}

// A store with exclusive use of a cluster waits for no other server, but still uses the cluster.
func TestExclusiveStoreWaitsForNoOtherServer(t *testing.T) {
	urls := startCluster(t, 1, nil).urls()
	for exclusive, shared := range map[bool]bool{true: false, false: true} {
		s := connect(t, Cluster{Servers: urls, Exclusive: exclusive})
		if s.Shared() != shared || !s.isElsewhere() {
			t.Errorf("exclusive %t: shared %t, elsewhere %t", exclusive, s.Shared(), s.isElsewhere())
		}
		snapshot, err := s.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		snapshot.Close()
	}
}
