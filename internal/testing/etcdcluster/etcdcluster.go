// Package etcdcluster runs etcd clusters with sockets in the process of a test, like clusters in other processes.
package etcdcluster

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
	"github.com/coppice-dev/coppice/internal/testing/freeport"
)

// Cluster is an etcd cluster. It ends with the test.
type Cluster struct {
	configs []*embed.Config
	members []*embed.Etcd // nil when stopped
}

// Start starts n members, and waits until they are ready. secure, if not nil, configures their TLS for clients.
func Start(t testing.TB, n int, secure *transport.TLSInfo) *Cluster {
	t.Helper()
	c := &Cluster{members: make([]*embed.Etcd, n)}
	var initial []string
	ports := freeport.Several(t, 2*n)
	for i := range n {
		config := embed.NewConfig()
		config.Name = fmt.Sprint("m", i)
		config.Dir = t.TempDir()
		config.TickMs, config.ElectionMs = 10, 100
		config.UnsafeNoFsync = true
		config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
		client, peer := urlOf(ports[2*i]), urlOf(ports[2*i+1])
		if secure != nil {
			client.Scheme, config.ClientTLSInfo, config.EnableGRPCGateway = "https", *secure, false
		}
		config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
		config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
		initial = append(initial, config.Name+"="+peer.String())
		c.configs = append(c.configs, config)
	}
	t.Cleanup(func() {
		for i := range c.members {
			c.Stop(i)
		}
	})
	for i, config := range c.configs {
		config.InitialCluster = strings.Join(initial, ",")
		c.start(t, i)
	}
	for i := range c.members {
		c.awaitReady(t, i)
	}
	return c
}

// Restart starts a member that was stopped, and waits until it is ready. Most members must be running then.
func (c *Cluster) Restart(t testing.TB, member int) {
	t.Helper()
	c.start(t, member)
	c.awaitReady(t, member)
}

// Stop stops a member, unless it was stopped before.
func (c *Cluster) Stop(member int) {
	if c.members[member] != nil {
		c.members[member].Close()
		c.members[member] = nil
	}
}

// URLs returns the URLs of the members for clients.
func (c *Cluster) URLs() []string {
	var urls []string
	for _, config := range c.configs {
		urls = append(urls, config.ListenClientUrls[0].String())
	}
	return urls
}

func (c *Cluster) start(t testing.TB, i int) {
	t.Helper()
	member, err := embed.StartEtcd(c.configs[i])
	if err != nil {
		t.Fatal(err)
	}
	c.members[i] = member
}

func (c *Cluster) awaitReady(t testing.TB, i int) {
	t.Helper()
	eventually.Holds(t, "the etcd member "+c.configs[i].Name+" is ready", func() bool {
		select {
		case <-c.members[i].Server.ReadyNotify():
			return true
		default:
			return false
		}
	})
}

func urlOf(port string) url.URL { return url.URL{Scheme: "http", Host: "127.0.0.1:" + port} }
