package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/node/agent/nodeconfig"
	"github.com/coppice-dev/coppice/internal/system"
	"github.com/coppice-dev/coppice/internal/tools/terminal"
	"github.com/coppice-dev/coppice/internal/tools/version"
)

// leastLease is the shortest Lease duration. The node sends four heartbeats in it.
const leastLease = time.Second

// nodeFlags are the flags of coppice node.
type nodeFlags struct {
	server  serverFlags
	name    string
	runtime string
	socket  string
	dataDir string
	address string
	bind    string
	port    int
	lease   time.Duration
}

func newNode(s Streams) *cobra.Command {
	var f nodeFlags
	c := &cobra.Command{
		Use:   "node",
		Short: "Run the agent of one node, for a control plane in another process",
		Long: `Runs the agent of one node. The agent registers the node, sends heartbeats, and starts and
stops the pods that are bound to the node. When the node is registered, the command prints a
line that begins with "ready". Ctrl-C stops the agent and leaves the pods running: the next
agent adopts them.

The kubeconfig should have a credential of this node, with rights to the node and its pods
only. "coppice up --write-node-kubeconfig" writes one.

--runtime=simulated runs no containers. --runtime=cri uses a container runtime on this
machine, which usually needs root. With cri, --data-dir has the logs and volumes of pods, and
the agent needs it to find its containers again; the default is the directory node in the
data directory of "coppice up".

--lease-duration must be shorter than --node-monitor-grace-period of "coppice up". The agent
sends four heartbeats within it.`,
		Example: `  # A control plane without nodes, and one node in a process of its own
  coppice up --nodes 0 --write-node-kubeconfig worker=$HOME/.kube/worker.kubeconfig
  coppice node --kubeconfig $HOME/.kube/worker.kubeconfig

  # The same, with a node that counts as not ready 4 s after its last heartbeat
  coppice up --nodes 0 --node-monitor-grace-period 4s --write-node-kubeconfig worker=$HOME/.kube/worker.kubeconfig
  coppice node --kubeconfig $HOME/.kube/worker.kubeconfig --lease-duration 2s`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return runNode(c.Context(), f, s) },
	}
	flags := c.Flags()
	defaults := system.DefaultNodeOptions()
	f.server.add(c, "kubeconfig of the server, with the credential of the node (default: $KUBECONFIG, else ~/.kube/config)")
	flags.StringVar(&f.name, "name", "", "name of the node (default: the name in its credential)")
	flags.StringVar(&f.runtime, "runtime", defaults.Runtime, "container runtime of pods: simulated (no containers) or cri (a runtime on this machine)")
	flags.StringVar(&f.socket, "cri-socket", "", "socket of the runtime with --runtime=cri, such as unix:///run/containerd/containerd.sock")
	flags.StringVar(&f.dataDir, "data-dir", "", "directory of the logs and volumes of pods with --runtime=cri (default: node in that of coppice up)")
	flags.StringVar(&f.bind, "bind-address", defaults.Bind.String(), "IP address on which the API server reads the logs of pods")
	flags.IntVar(&f.port, "port", 0, "port to serve the logs on; 0 picks a free one")
	flags.StringVar(&f.address, "node-ip", "", "IP address that the API server uses for the logs (default: --bind-address)")
	flags.DurationVar(&f.lease, "lease-duration", defaults.Lease, "time for which a heartbeat is valid; shorter than --node-monitor-grace-period of coppice up")
	completeWith(c, "runtime", nodeconfig.Simulated, nodeconfig.CRI)
	return c
}

func runNode(ctx context.Context, f nodeFlags, s Streams) error {
	began := time.Now()
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	options, err := f.options(ctx, s.Err)
	if err != nil {
		return err
	}
	server, err := f.server.connect(ctx, options.Log)
	if err != nil {
		return unlessStopped(ctx, err)
	}
	options.Config = rest.CopyConfig(server.config)
	options.Reread = func() (*rest.Config, error) {
		config, _, err := f.server.loadConfig()
		return config, err
	}
	options.Config.QPS, options.Config.UserAgent = -1, "coppice-node"
	err = system.RunNode(ctx, options, func(name string) {
		terminal.Fprintf(s.Out, "ready node %s of %s in %.2fs\n", name, server.config.Host, time.Since(began).Seconds())
	})
	if errors.Is(err, system.ErrNoNode) {
		return fmt.Errorf("%s: %w: coppice up --write-node-kubeconfig NAME=FILE writes one that is, or name the node with --name", server.source, err)
	}
	return unlessStopped(ctx, err)
}

// options validates the flags as far as possible without a server.
func (f nodeFlags) options(ctx context.Context, logs io.Writer) (system.NodeOptions, error) {
	none := system.NodeOptions{}
	bind, address, err := f.addresses()
	if err != nil {
		return none, usageError{err}
	}
	if err := (nodeconfig.Options{Runtime: f.runtime, Socket: f.socket, Nodes: 1}).Validate("--runtime"); err != nil {
		return none, usageError{err}
	}
	if f.lease < leastLease {
		return none, usageError{fmt.Errorf("--lease-duration %s is less than %s", f.lease, leastLease)}
	}
	if f.name != "" {
		if err := checkNodeName(f.name); err != nil {
			return none, usageError{fmt.Errorf("--name %w", err)}
		}
	}
	log, err := newLogger(ctx, logs, f.server.logLevel, f.server.logFormat)
	if err != nil {
		return none, err
	}
	dir := f.dataDir
	if dir == "" && f.runtime == nodeconfig.CRI {
		above, err := dataDir()
		if err != nil {
			return none, err
		}
		dir = filepath.Join(above, "node")
	}
	return system.NodeOptions{
		Name: f.name, Runtime: f.runtime, Socket: f.socket, Dir: dir, Address: address, Bind: bind, Port: f.port, Lease: f.lease,
		Version: version.Kubernetes(), Log: log,
	}, nil
}

// addresses returns the address to serve on and the address of the node.
func (f nodeFlags) addresses() (bind, node net.IP, err error) {
	if bind = net.ParseIP(f.bind); bind == nil {
		return nil, nil, fmt.Errorf("--bind-address %q is not an IP address", f.bind)
	}
	if f.port < 0 || f.port > 65535 {
		return nil, nil, fmt.Errorf("--port %d is not between 0 and 65535", f.port)
	}
	if f.address == "" && bind.IsUnspecified() {
		return nil, nil, fmt.Errorf("--bind-address %s means all addresses of the machine: set the address of the node with --node-ip", f.bind)
	}
	if node = net.ParseIP(cmp.Or(f.address, f.bind)); node == nil || node.IsUnspecified() {
		return nil, nil, fmt.Errorf("--node-ip %q is not the IP address of a node", f.address)
	}
	return bind, node, nil
}

// checkNodeName validates the name of a node.
func checkNodeName(name string) error {
	if problems := validation.NameIsDNSSubdomain(name, false); len(problems) > 0 {
		return fmt.Errorf("%q cannot be the name of a node: %s", name, problems[0])
	}
	return nil
}
