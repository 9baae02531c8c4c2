package e2e

import (
	"bufio"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/coppice-dev/coppice/internal/testing/freeport"
)

// memberVariable holds the arguments with which the test binary runs as an etcd member.
const memberVariable = "COPPICE_TEST_ETCD"

// beMember runs an etcd member until the process is killed.
func beMember(arguments string) int {
	parts := strings.Split(arguments, " ") // name, directory, client URL, peer URL, cluster
	config := embed.NewConfig()
	config.Name, config.Dir, config.InitialCluster = parts[0], parts[1], parts[4]
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	for i, urls := range []*[]url.URL{&config.ListenClientUrls, &config.ListenPeerUrls} {
		u, err := url.Parse(parts[2+i])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		*urls = []url.URL{*u}
	}
	config.AdvertiseClientUrls, config.AdvertisePeerUrls = config.ListenClientUrls, config.ListenPeerUrls
	member, err := embed.StartEtcd(config)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	<-member.Server.ReadyNotify()
	fmt.Println("ready")
	fmt.Fprintln(os.Stderr, <-member.Err())
	return 1
}

// member is an etcd server in a process of its own.
type member struct {
	url     string
	config  string
	command *exec.Cmd
}

// startEtcd starts an etcd cluster, with etcd's default timing and syncing.
func startEtcd(t *testing.T, n int) []*member {
	t.Helper()
	dir := t.TempDir()
	members := make([]*member, n)
	var peers []string
	ports := freeport.Several(t, 2*n)
	for i := range n {
		members[i] = &member{url: "http://127.0.0.1:" + ports[2*i]}
		peers = append(peers, fmt.Sprintf("m%d=http://127.0.0.1:%s", i, ports[2*i+1]))
	}
	for i, m := range members {
		name, peer, _ := strings.Cut(peers[i], "=")
		m.config = strings.Join([]string{name, filepath.Join(dir, name), m.url, peer, strings.Join(peers, ",")}, " ")
	}
	t.Cleanup(func() {
		for _, m := range members {
			m.kill()
		}
	})
	ready := make(chan error, n)
	for _, m := range members {
		go func() { ready <- m.start() }()
	}
	for range members {
		if err := <-ready; err != nil {
			t.Fatal(err)
		}
	}
	return members
}

// start returns when the member has joined its cluster.
func (m *member) start() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	m.command = exec.Command(self)
	m.command.Env = append(os.Environ(), memberVariable+"="+m.config)
	m.command.Stderr = os.Stderr
	stdout, err := m.command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := m.command.Start(); err != nil {
		return err
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return fmt.Errorf("etcd member %s: %q %w", m.url, line, err)
	}
	return nil
}

// kill ends the member with SIGKILL.
func (m *member) kill() {
	if m.command != nil {
		_ = m.command.Process.Kill()
		_ = m.command.Wait()
	}
}

func urlsOf(members []*member) string {
	var urls []string
	for _, m := range members {
		urls = append(urls, m.url)
	}
	return strings.Join(urls, ",")
}

// balancer is a load balancer for the replicas of a control plane: a connection goes to the first
// of them that accepts it.
type balancer struct {
	net.Listener
	backends []string
}

func startBalancer(t *testing.T, backends ...string) *balancer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{l, backends}
	t.Cleanup(func() { b.Close() })
	go b.serve()
	return b
}

func (b *balancer) serve() {
	for turn := 0; ; turn++ {
		client, err := b.Accept()
		if err != nil {
			return
		}
		go b.forward(client, turn)
	}
}

func (b *balancer) forward(client net.Conn, turn int) {
	defer client.Close()
	for i := range b.backends {
		server, err := net.DialTimeout("tcp", b.backends[(turn+i)%len(b.backends)], time.Second)
		if err != nil {
			continue
		}
		defer server.Close()
		done := make(chan struct{}, 2)
		for _, pair := range [][2]net.Conn{{client, server}, {server, client}} {
			go func() {
				_, _ = bufio.NewReader(pair[0]).WriteTo(pair[1])
				done <- struct{}{}
			}()
		}
		<-done
		return
	}
}
