package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/coppice-dev/coppice/internal/node/agent/nodeconfig"
	"github.com/coppice-dev/coppice/internal/rules/escape"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/system"
	"github.com/coppice-dev/coppice/internal/tools/terminal"
	"github.com/coppice-dev/coppice/internal/tools/version"
)

// dataDirVariable is the environment variable that names the data directory for all commands.
const dataDirVariable = "COPPICE_DATA_DIR"

// defaultPort is also the default of kube-apiserver's --secure-port.
const defaultPort = 6443

// leastQuota is the smallest useful --quota-backend-bytes.
const leastQuota = 4 << 20

// upFlags are the flags of coppice up. Most flags set a field of Options; the others have to be parsed, or set
// several fields.
type upFlags struct {
	system.Options
	bindAddress      string
	advertiseAddress string
	serviceRange     string
	collector        bool
	controllers      []string
	order            deletionOrder
	auditLogSet      bool // --audit-log-path was given
	recycle          []string
	logLevel         string
	input            inputFlag
}

const upLong = `Runs a control plane in this process: API server, embedded etcd, garbage collector,
namespace controller, the controllers of workloads, scheduler and simulated nodes. When it
is ready it prints the path of its kubeconfig, and a line that begins with "ready". Ctrl-C
stops it; its data stays, unless --ephemeral.

--controllers names the controllers of this process. workloads are the controllers of
Deployments, Jobs and the like. The server expects that gc and namespace run, here or by
"coppice collect". With --enable-garbage-collector=false it expects no garbage collector:
deletions do not cascade, and add no finalizers for a collector.

--disable-admission-plugins takes ` + system.OwnerReferencesPlugin + `, which
refuses invalid owner references and those that the user has no right to, and
` + system.ServiceAccountPlugin + `, which refuses pods whose service account does not exist, and mounts a token
into others.

--advertise-address is the address in the endpoints of the service default/kubernetes. The
default is --bind-address, or the address of the machine's default route if that is loopback
or 0.0.0.0.

--etcd-servers names an etcd cluster, which several control planes may share; they need the
same --pki-dir. If the etcd in this process reaches --quota-backend-bytes, it refuses writes
until objects are deleted.

--node-runtime=simulated runs no containers: pods start, run and end as they would with
containers. --node-runtime=cri uses a container runtime on this machine, which usually needs
root; --nodes is 1, this machine, or 0.

--recycle=SIZE,AGE keeps deleted objects, encrypted in the data directory, for "coppice undo".

--movable-node-clock is for tests: administrators can move the clock of simulated nodes
forward, with POST /coppice/nodes/clock?advance=30s.`

func newUp(s Streams) *cobra.Command {
	var f upFlags
	c := &cobra.Command{
		Use:   "up",
		Short: "Run a control plane in this process",
		Long:  upLong,
		Example: `  # On port 6443 of loopback, data in ` + "`~/.local/share/coppice`" + `
  coppice up

  # For a test: a free port, a temporary data directory, and a kubeconfig with a given path
  coppice up --ephemeral --secure-port 0 --write-kubeconfig /tmp/kubeconfig

  # With real containers, on this machine
  coppice up --node-runtime cri --cri-socket unix:///run/containerd/containerd.sock`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			f.auditLogSet = c.Flags().Changed("audit-log-path")
			return up(c.Context(), f, s)
		},
	}
	flags, defaults := c.Flags(), system.DefaultOptions()
	flags.StringVar(&f.DataDir, "data-dir", "", "directory of the objects, certificates and kubeconfig (default: $"+dataDirVariable+", else ~/.local/share/coppice)")
	flags.StringVar(&f.WriteKubeconfig, "write-kubeconfig", "", "file to add the entries of the kubeconfig to; its other entries are kept")
	flags.StringVar(&f.WriteCollectorKubeconfig, "write-collector-kubeconfig", "", "file for a kubeconfig for coppice collect, with the rights of the garbage collector only")
	flags.IntVar(&f.Port, "secure-port", defaultPort, "port to serve HTTPS on; 0 picks a free one")
	flags.StringVar(&f.bindAddress, "bind-address", "127.0.0.1", "IP address to listen on")
	flags.StringVar(&f.advertiseAddress, "advertise-address", "", "IP address of the server for pods and nodes (default: see above)")
	flags.BoolVar(&f.Ephemeral, "ephemeral", false, "keep no data: use a temporary directory, and remove it at the end")
	flags.BoolVar(&f.collector, "enable-garbage-collector", true, "expect a garbage collector, in this process or another one")
	flags.StringSliceVar(&f.controllers, "controllers", []string{controllerGC, controllerNamespace, controllerProtection, controllerWorkloads, controllerScheduler}, "controllers to run in this process: gc, namespace, protection, workloads, scheduler; none if empty")
	f.order.add(c)
	flags.StringSliceVar(&f.DisableAdmissionPlugins, "disable-admission-plugins", nil, "admission plug-ins to disable: "+strings.Join(system.OptionalPlugins(), ", "))
	flags.StringVar(&f.serviceRange, "service-cluster-ip-range", defaults.Services.Addresses.String(), "range of the cluster IPs of services")
	flags.StringVar(&f.AuditPath, "audit-log-path", "", `file of the audit log, "-" for stdout, "" for none (default: audit.log in the data directory)`)
	flags.StringSliceVar(&f.Etcd.Servers, "etcd-servers", nil, "URLs of an etcd cluster for the objects, instead of the etcd in this process")
	flags.StringVar(&f.Etcd.CAFile, "etcd-cafile", "", "certificate authority of the etcd servers, as PEM (default: the system's authorities)")
	flags.StringVar(&f.Etcd.CertFile, "etcd-certfile", "", "client certificate for the etcd servers, as PEM")
	flags.StringVar(&f.Etcd.KeyFile, "etcd-keyfile", "", "key of --etcd-certfile, as PEM")
	flags.StringVar(&f.Etcd.Prefix, "etcd-prefix", defaults.Etcd.Prefix, "prefix of all keys in the etcd of --etcd-servers")
	flags.Int64Var(&f.QuotaBytes, "quota-backend-bytes", defaults.QuotaBytes, "maximum size of the database of the etcd in this process, in bytes")
	flags.StringVar(&f.PKIDir, "pki-dir", "", "directory of the keys; the same for all control planes on an etcd (default: pki in --data-dir)")
	flags.StringVar(&f.ExternalHost, "external-hostname", "", "name or IP address of the server for clients, such as its load balancer's; with :port if different")
	flags.IntVar(&f.Nodes.Nodes, "nodes", defaults.Nodes.Nodes, "number of nodes; with --node-runtime=cri 1 or 0")
	flags.StringVar(&f.Nodes.Runtime, "node-runtime", defaults.Nodes.Runtime, "container runtime of pods: simulated (no containers) or cri (a runtime on this machine)")
	flags.StringVar(&f.Nodes.Socket, "cri-socket", "", "socket of the runtime with --node-runtime=cri, such as unix:///run/containerd/containerd.sock")
	flags.DurationVar(&f.NodeGrace, "node-monitor-grace-period", defaults.NodeGrace, "time without a heartbeat after which a node is not ready")
	flags.StringToStringVar(&f.WriteNodeKubeconfigs, "write-node-kubeconfig", nil, "file for a kubeconfig of the node NAME, as NAME=FILE, for coppice node; may be repeated")
	flags.StringVar(&f.logLevel, "log-level", "info", logLevelUsage)
	flags.StringSliceVar(&f.recycle, "recycle", nil, "keep deleted objects for coppice undo, up to a size and an age, such as 1Gi,168h")
	flags.BoolVar(&f.MovableNodeClock, "movable-node-clock", false, "let administrators move the clock of simulated nodes forward, for tests")
	f.input.add(c)
	completeWith(c, "controllers", controllerGC, controllerNamespace, controllerProtection, controllerWorkloads, controllerScheduler)
	completeWith(c, "disable-admission-plugins", system.OptionalPlugins()...)
	completeWith(c, "node-runtime", nodeconfig.Simulated, nodeconfig.CRI)
	completeWith(c, "log-level", logLevels()...)
	return c
}

func up(ctx context.Context, f upFlags, s Streams) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := f.input.follow(ctx, s.In)
	defer cancel()
	options, err := f.options(ctx, s.Err)
	if err != nil {
		return err
	}
	return system.Run(ctx, options, func(p system.Plane) {
		terminal.Fprintf(s.Out, "export KUBECONFIG=%s\n", escape.Shell(p.Kubeconfig))
		terminal.Fprintf(s.Out, "ready %s in %.2fs\n", p.Server, p.Started.Seconds())
	})
}

// options validates the flags and returns the options that they set.
func (f upFlags) options(ctx context.Context, logs io.Writer) (system.Options, error) {
	address := net.ParseIP(f.bindAddress)
	if address == nil {
		return system.Options{}, usageError{fmt.Errorf("--bind-address %q is not an IP address", f.bindAddress)}
	}
	advertised, err := f.advertised()
	if err != nil {
		return system.Options{}, err
	}
	if f.Port < 0 || f.Port > 65535 {
		return system.Options{}, usageError{fmt.Errorf("--secure-port %d is not between 0 and 65535", f.Port)}
	}
	if f.Ephemeral && f.DataDir != "" {
		return system.Options{}, usageError{fmt.Errorf("--ephemeral keeps no data, and --data-dir %s keeps it: choose one", f.DataDir)}
	}
	if err := f.checkControllers(); err != nil {
		return system.Options{}, err
	}
	for _, name := range f.DisableAdmissionPlugins {
		if !slices.Contains(system.OptionalPlugins(), name) {
			return system.Options{}, usageError{fmt.Errorf("--disable-admission-plugins %s: choose from %s", name, strings.Join(system.OptionalPlugins(), " and "))}
		}
	}
	if err := f.checkKubeconfigs(); err != nil {
		return system.Options{}, err
	}
	services, err := system.ServiceRanges(f.serviceRange)
	if err != nil {
		return system.Options{}, usageError{fmt.Errorf("--service-cluster-ip-range %w", err)}
	}
	if err := f.checkEtcd(); err != nil {
		return system.Options{}, err
	}
	recycle, err := recycleBounds(f.recycle)
	if err != nil {
		return system.Options{}, usageError{err}
	}
	log, err := newLogger(ctx, logs, f.logLevel, "text")
	if err != nil {
		return system.Options{}, err
	}
	o := f.Options
	if err := defaultDataDir(&o); err != nil {
		return system.Options{}, err
	}
	o.BindAddress, o.AdvertiseAddress, o.Services, o.AuditPath = address, advertised, services, f.auditPath()
	o.GarbageCollector = f.collectorPlacement()
	o.NamespaceController = f.placement(controllerNamespace, system.Elsewhere)
	o.NamespaceDeletionOrder = f.order.value
	o.VolumeProtection = f.placement(controllerProtection, system.Disabled)
	o.Workloads = f.placement(controllerWorkloads, system.Disabled)
	o.Scheduler = slices.Contains(f.controllers, controllerScheduler)
	o.Version, o.Log, o.Recycle = version.Kubernetes(), log, recycle
	return o, nil
}

// defaultDataDir sets the data directory, unless nothing is kept.
func defaultDataDir(o *system.Options) (err error) {
	if o.DataDir == "" && !o.Ephemeral {
		o.DataDir, err = dataDir()
	}
	return err
}

// advertised returns the value of --advertise-address; nil if it is not set.
func (f upFlags) advertised() (net.IP, error) {
	if f.advertiseAddress == "" {
		return nil, nil // the default is chosen later
	}
	ip := net.ParseIP(f.advertiseAddress)
	if ip == nil || !ip.IsGlobalUnicast() {
		return nil, usageError{fmt.Errorf("--advertise-address %q is not an IP address by which other machines can reach this one", f.advertiseAddress)}
	}
	return ip, nil
}

// placement returns InProcess for a controller that --controllers names, and the given placement for
// another one.
func (f upFlags) placement(controller string, otherwise system.Placement) system.Placement {
	if slices.Contains(f.controllers, controller) {
		return system.InProcess
	}
	return otherwise
}

// auditPath returns the value of --audit-log-path; NoAuditLog if the flag is set to the empty string.
func (f upFlags) auditPath() string {
	if f.auditLogSet && f.AuditPath == "" {
		return system.NoAuditLog
	}
	return f.AuditPath
}

func (f upFlags) collectorPlacement() system.Placement {
	if !f.collector {
		return system.Disabled
	}
	return f.placement(controllerGC, system.Elsewhere)
}

// checkKubeconfigs checks that no two users share a file: one must not get the other's credential.
func (f upFlags) checkKubeconfigs() error {
	if f.WriteCollectorKubeconfig != "" && f.WriteCollectorKubeconfig == f.WriteKubeconfig {
		return usageError{fmt.Errorf("--write-kubeconfig and --write-collector-kubeconfig both name %s: the collector's must not be the administrator's", f.WriteCollectorKubeconfig)}
	}
	taken := map[string]string{f.WriteKubeconfig: "--write-kubeconfig", f.WriteCollectorKubeconfig: "--write-collector-kubeconfig"}
	for _, name := range slices.Sorted(maps.Keys(f.WriteNodeKubeconfigs)) {
		path := f.WriteNodeKubeconfigs[name]
		if err := checkNodeName(name); err != nil {
			return usageError{fmt.Errorf("--write-node-kubeconfig: %w", err)}
		}
		if path == "" {
			return usageError{fmt.Errorf("--write-node-kubeconfig %s= names no file", name)}
		}
		if other := taken[path]; other != "" {
			return usageError{fmt.Errorf("--write-node-kubeconfig %s=%s: that file is for %s already", name, path, other)}
		}
		taken[path] = "node " + name
		if slices.Contains(f.Nodes.Names(), name) {
			return usageError{fmt.Errorf("--write-node-kubeconfig %s: --nodes %d has a node of that name in this process", name, f.Nodes.Nodes)}
		}
	}
	return nil
}

// checkControllers validates the flags of the controllers and nodes.
func (f upFlags) checkControllers() error {
	if err := f.Nodes.Validate("--node-runtime"); err != nil {
		return usageError{err}
	}
	if f.MovableNodeClock && f.Nodes.Runtime == nodeconfig.CRI {
		return usageError{errors.New("--movable-node-clock is for simulated nodes: real containers take the time that they take")}
	}
	if f.NodeGrace < leastLease {
		return usageError{fmt.Errorf("--node-monitor-grace-period %s is less than %s", f.NodeGrace, leastLease)}
	}
	return checkControllers(f.controllers, controllerGC, controllerNamespace, controllerProtection, controllerWorkloads, controllerScheduler)
}

// checkEtcd validates the flags of etcd.
func (f upFlags) checkEtcd() error {
	if len(f.Etcd.Servers) == 0 {
		if f.Etcd.CAFile != "" || f.Etcd.CertFile != "" || f.Etcd.KeyFile != "" || f.Etcd.Prefix != system.DefaultOptions().Etcd.Prefix {
			return usageError{errors.New("--etcd-cafile, --etcd-certfile, --etcd-keyfile and --etcd-prefix are about the etcd of --etcd-servers, which is not given")}
		}
		if f.QuotaBytes < leastQuota {
			return usageError{fmt.Errorf("--quota-backend-bytes %d is less than %d, which is too small for any control plane", f.QuotaBytes, leastQuota)}
		}
		return nil
	}
	if f.Ephemeral {
		return usageError{errors.New("--ephemeral keeps no data, and an etcd of --etcd-servers keeps it: choose one")}
	}
	if err := f.Etcd.Validate(); err != nil {
		return usageError{fmt.Errorf("--etcd-servers: %w", err)}
	}
	return nil
}

// dataDir returns the default data directory.
func dataDir() (string, error) {
	if dir := os.Getenv(dataDirVariable); dir != "" {
		return dir, nil
	}
	return system.DefaultDataDir()
}

// newLogger returns a logger to w, as text or JSON. klog, which the Kubernetes libraries use,
// writes to it too. Their messages at level Info serve only their developers, so the logger shows them
// only at level debug, and so all messages that they log after ctx has ended.
func newLogger(ctx context.Context, w io.Writer, level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, usageError{fmt.Errorf("--log-level %s: choose debug, info, warn or error", strconv.Quote(level))}
	}
	libraries := max(l, slog.LevelError)
	if l <= slog.LevelDebug {
		libraries = l
	}
	handler := func(level slog.Level) slog.Handler {
		return slog.NewTextHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: boundedAttr})
	}
	switch format {
	case "text":
	case "json":
		handler = func(level slog.Level) slog.Handler {
			return slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: boundedAttr})
		}
	default:
		return nil, usageError{fmt.Errorf("--log-format %s: choose text or json", strconv.Quote(format))}
	}
	klog.StopFlushDaemon() // it reads the logger without a lock, and slog has nothing to flush
	klog.SetSlogLogger(slog.New(newLibraryLog(handler(libraries), ctx.Done())).With("from", "library"))
	return slog.New(handler(l)), nil
}

// maxAttr bounds the length of a text in the log, in bytes: objects and answers of servers may have texts of any length.
const maxAttr = 2048

// boundedAttr cuts long texts in the log.
func boundedAttr(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindString:
		if text := a.Value.String(); len(text) > maxAttr {
			a.Value = slog.StringValue(ownership.Excerpt(text, maxAttr))
		}
	case slog.KindAny:
		text := fmt.Sprint(a.Value.Any()) // of an error, a list of names, or a value with a method String
		if _, isError := a.Value.Any().(error); isError || len(text) > maxAttr {
			a.Value = slog.StringValue(ownership.Excerpt(text, maxAttr))
		}
	default:
	}
	return a
}
