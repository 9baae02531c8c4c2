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

	"github.com/coppice-dev/coppice/internal/agent"
	"github.com/coppice-dev/coppice/internal/agent/nodeconfig"
	"github.com/coppice-dev/coppice/internal/system"
	"github.com/coppice-dev/coppice/internal/version"
)

// leastLease is the shortest lease: heartbeats are four times as often.
const leastLease = time.Second

// nodeFlags are the flags of coppice node.
type nodeFlags struct {
	kubeconfig string
	context    string
	name       string
	runtime    string
	socket     string
	dataDir    string
	address    string
	bind       string
	port       int
	lease      time.Duration
	logLevel   string
	logFormat  string
}

func newNode(s Streams) *cobra.Command {
	var f nodeFlags
	c := &cobra.Command{
		Use:   "node",
		Short: "Run the agent of one node, against a control plane elsewhere",
		Long: `Runs the agent of one node: it registers the node, sends its heartbeats, and sees to it
that the pods that are bound to the node run, and end. When the node is registered it
prints a line that begins with "ready". Ctrl-C stops the agent, and no pod: the next one
takes them over.

The credential is one that may touch this node and its pods only, as
coppice up --write-node-kubeconfig writes it.`,
		Example: `  # A control plane without nodes, and one node in a process of its own
  coppice up --nodes 0 --write-node-kubeconfig worker=/tmp/worker.kubeconfig
  coppice node --kubeconfig /tmp/worker.kubeconfig

  # One that counts as not ready 4 s after its last heartbeat
  coppice up --nodes 0 --node-monitor-grace-period 4s --write-node-kubeconfig worker=/tmp/worker.kubeconfig
  coppice node --kubeconfig /tmp/worker.kubeconfig --lease-duration 2s`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return runNode(c.Context(), f, s) },
	}
	flags := c.Flags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "file that says how to reach the server, and has the node's credential (default $KUBECONFIG, else ~/.kube/config)")
	flags.StringVar(&f.context, "context", "", "context of the kubeconfig to use (default its current one)")
	flags.StringVar(&f.name, "name", "", "name of the node (default that of its credential)")
	flags.StringVar(&f.runtime, "runtime", nodeconfig.Simulated, "what runs containers: simulated, which has none, or cri, a container runtime on this machine; that needs root, as a rule")
	flags.StringVar(&f.socket, "cri-socket", "", "where the container runtime of --runtime=cri serves, such as unix:///run/containerd/containerd.sock")
	flags.StringVar(&f.dataDir, "data-dir", "", "where an agent with --runtime=cri keeps logs and volumes of pods (default node, in what coppice up calls --data-dir); with another one it does not find its containers again")
	flags.StringVar(&f.bind, "bind-address", "127.0.0.1", "IP address to serve the logs of pods on, to the API server only")
	flags.IntVar(&f.port, "port", 0, "port to serve them on; 0 picks a free one")
	flags.StringVar(&f.address, "node-ip", "", "IP address of the node, by which the API server finds the logs (default --bind-address)")
	flags.DurationVar(&f.lease, "lease-duration", agent.DefaultLease, "how long a heartbeat counts; they are sent four times as often. Shorter than the server's --node-monitor-grace-period")
	flags.StringVar(&f.logLevel, "log-level", "info", "what to log on stderr: debug, info, warn or error")
	flags.StringVar(&f.logFormat, "log-format", "text", "text or json")
	return c
}

func runNode(ctx context.Context, f nodeFlags, s Streams) error {
	began := time.Now() //nolint:forbidigo // says how long the start took
	options, err := f.options(s.Err)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	config, source, err := loadConfig(f.kubeconfig, f.context)
	if err != nil {
		return err
	}
	c, err := newCheck(config, source, options.Log)
	if err != nil {
		return err
	}
	if err := c.reach(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // told to stop before it began
		}
		return err
	}
	options.Config = rest.CopyConfig(config)
	options.Reread = func() (*rest.Config, error) {
		config, _, err := loadConfig(f.kubeconfig, f.context)
		return config, err
	}
	options.Config.QPS, options.Config.UserAgent = -1, "coppice-node"
	err = system.RunNode(ctx, options, func(name string) {
		fmt.Fprintf(s.Out, "ready node %s of %s in %.2fs\n", name, config.Host, time.Since(began).Seconds())
	})
	if errors.Is(err, system.ErrNoNode) {
		return fmt.Errorf("%s: %w: coppice up --write-node-kubeconfig NAME=FILE writes one that is, or say with --name which node it is to be", source, err)
	}
	if err != nil && ctx.Err() != nil {
		return nil
	}
	return err
}

// options checks the flags as far as that can be done without a server.
func (f nodeFlags) options(logs io.Writer) (system.NodeOptions, error) {
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
	log, err := newLogger(logs, f.logLevel, f.logFormat)
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

// addresses are where the agent serves, and where it says that it does.
func (f nodeFlags) addresses() (bind, node net.IP, err error) {
	if bind = net.ParseIP(f.bind); bind == nil {
		return nil, nil, fmt.Errorf("--bind-address %q is not an IP address", f.bind)
	}
	if f.port < 0 || f.port > 65535 {
		return nil, nil, fmt.Errorf("--port %d is not between 0 and 65535", f.port)
	}
	if f.address == "" && bind.IsUnspecified() {
		return nil, nil, fmt.Errorf("--bind-address %s is all addresses of the machine: say with --node-ip which one is the node's", f.bind)
	}
	if node = net.ParseIP(cmp.Or(f.address, f.bind)); node == nil || node.IsUnspecified() {
		return nil, nil, fmt.Errorf("--node-ip %q is not the IP address of a node", f.address)
	}
	return bind, node, nil
}

// checkNodeName tells what is wrong with the name of a node.
func checkNodeName(name string) error {
	if problems := validation.NameIsDNSSubdomain(name, false); len(problems) > 0 {
		return fmt.Errorf("%q cannot be the name of a node: %s", name, problems[0])
	}
	return nil
}
