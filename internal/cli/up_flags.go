package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coppice-dev/coppice/internal/apiserver/faults"
	"github.com/coppice-dev/coppice/internal/node/agent/nodeconfig"
	"github.com/coppice-dev/coppice/internal/system"
	"github.com/coppice-dev/coppice/internal/tools/version"
)

// upFlags are the flags of coppice up, in groups. Most flags set a field of Options. A group has the flags that have to
// be parsed, or that set several fields.
type upFlags struct {
	system.Options

	address     upAddress
	storage     upStorage
	controllers upControllers
	nodes       upNodes
	kubeconfigs upKubeconfigs
	audit       upAudit
	protect     upProtect
	faults      upFaults
	logLevel    string
	kubernetes  string // the minor whose API is served
	input       inputFlag
}

// upGroup is a group of flags of coppice up.
type upGroup interface {
	// add adds the flags. They set fields of the group and of the options.
	add(flags *pflag.FlagSet, o *system.Options)
	// complete validates the group, and sets the options that its flags do not set themselves.
	complete(o *system.Options) error
}

func (f *upFlags) groups() []upGroup {
	return []upGroup{&f.address, &f.storage, &f.controllers, &f.nodes, &f.kubeconfigs, &f.audit, &f.protect, &f.faults}
}

func (f *upFlags) add(c *cobra.Command) {
	for _, g := range f.groups() {
		g.add(c.Flags(), &f.Options)
	}
	f.controllers.order.add(c)
	c.Flags().StringVar(&f.logLevel, "log-level", "info", logLevelUsage)
	c.Flags().StringVar(&f.kubernetes, "emulated-version", "", "minor of Kubernetes whose API is served: "+strings.Join(version.Minors(), ", ")+" (default: the last one)")
	f.input.add(c)
	addConfirm(c.Flags(), &f.Confirm)
	completeWith(c, "emulated-version", version.Minors()...)
	completeWith(c, "controllers", upControllerNames()...)
	completeWith(c, "disable-admission-plugins", system.OptionalPlugins()...)
	completeWith(c, "node-runtime", nodeconfig.Simulated, nodeconfig.CRI)
	completeWith(c, "log-level", logLevels()...)
}

// options validates the flags and returns the options that they set.
func (f upFlags) options(ctx context.Context, logs io.Writer) (system.Options, error) {
	o := f.Options
	for _, g := range f.groups() {
		if err := g.complete(&o); err != nil {
			return system.Options{}, err
		}
	}
	log, err := newLogger(ctx, logs, f.logLevel, "text")
	if err != nil {
		return system.Options{}, err
	}
	o.Log = log
	if o.Version, err = version.KubernetesOf(f.kubernetes); err != nil {
		return system.Options{}, usageError{fmt.Errorf("--emulated-version: %w", err)}
	}
	return o, emulate(o.Version)
}

// upAddress are the addresses of the server and of services.
type upAddress struct{ bind, advertise, services string }

// defaultPort is also the default of kube-apiserver's --secure-port.
const defaultPort = 6443

func (g *upAddress) add(flags *pflag.FlagSet, o *system.Options) {
	flags.IntVar(&o.Port, "secure-port", defaultPort, "port to serve HTTPS on; 0 picks a free one")
	flags.StringVar(&g.bind, "bind-address", "127.0.0.1", "IP address to listen on")
	flags.StringVar(&g.advertise, "advertise-address", "", "IP address of the server for pods and nodes (default: see above)")
	flags.StringVar(&o.ExternalHost, "external-hostname", "", "name or IP address of the server for clients, such as its load balancer's; with :port if different")
	flags.StringVar(&g.services, "service-cluster-ip-range", system.DefaultOptions().Services.Addresses.String(), "range of the cluster IPs of services")
}

func (g *upAddress) complete(o *system.Options) (err error) {
	if o.BindAddress = net.ParseIP(g.bind); o.BindAddress == nil {
		return usageError{fmt.Errorf("--bind-address %q is not an IP address", g.bind)}
	}
	if g.advertise != "" { // the default is chosen later
		o.AdvertiseAddress = net.ParseIP(g.advertise)
		if o.AdvertiseAddress == nil || !o.AdvertiseAddress.IsGlobalUnicast() {
			return usageError{fmt.Errorf("--advertise-address %q is not an IP address by which other machines can reach this one", g.advertise)}
		}
	}
	if o.Port < 0 || o.Port > 65535 {
		return usageError{fmt.Errorf("--secure-port %d is not between 0 and 65535", o.Port)}
	}
	if o.Services, err = system.ServiceRanges(g.services); err != nil {
		return usageError{fmt.Errorf("--service-cluster-ip-range %w", err)}
	}
	return nil
}

// upStorage is the storage of the objects: a directory, or an etcd elsewhere.
type upStorage struct{ recycle []string }

// leastQuota is the smallest useful --quota-backend-bytes.
const leastQuota = 4 << 20

func (g *upStorage) add(flags *pflag.FlagSet, o *system.Options) {
	defaults := system.DefaultOptions()
	flags.StringVar(&o.DataDir, "data-dir", "", "directory of the objects, certificates and kubeconfig (default: $"+dataDirVariable+", else ~/.local/share/coppice)")
	flags.BoolVar(&o.Ephemeral, "ephemeral", false, "keep no data: use a temporary directory, and remove it at the end")
	flags.StringSliceVar(&o.Etcd.Servers, "etcd-servers", nil, "URLs of an etcd cluster for the objects, instead of the etcd in this process")
	flags.StringVar(&o.Etcd.CAFile, "etcd-cafile", "", "certificate authority of the etcd servers, as PEM (default: the system's authorities)")
	flags.StringVar(&o.Etcd.CertFile, "etcd-certfile", "", "client certificate for the etcd servers, as PEM")
	flags.StringVar(&o.Etcd.KeyFile, "etcd-keyfile", "", "key of --etcd-certfile, as PEM")
	flags.StringVar(&o.Etcd.Prefix, "etcd-prefix", defaults.Etcd.Prefix, "prefix of all keys in the etcd of --etcd-servers")
	flags.Int64Var(&o.QuotaBytes, "quota-backend-bytes", defaults.QuotaBytes, "maximum size of the database of the etcd in this process, in bytes")
	flags.StringVar(&o.PKIDir, "pki-dir", "", "directory of the keys; the same for all control planes on an etcd (default: pki in --data-dir)")
	flags.StringSliceVar(&g.recycle, "recycle", nil, "keep deleted objects for coppice undo, up to a size and an age, such as 1Gi,168h")
}

func (g *upStorage) complete(o *system.Options) (err error) {
	if o.Ephemeral && o.DataDir != "" {
		return usageError{fmt.Errorf("--ephemeral keeps no data, and --data-dir %s keeps it: choose one", o.DataDir)}
	}
	if err := checkEtcd(o); err != nil {
		return err
	}
	if o.Recycle, err = recycleBounds(g.recycle); err != nil {
		return usageError{err}
	}
	if o.DataDir == "" && !o.Ephemeral {
		o.DataDir, err = dataDir()
	}
	return err
}

// checkEtcd validates the flags of etcd.
func checkEtcd(o *system.Options) error {
	if len(o.Etcd.Servers) == 0 {
		if o.Etcd.CAFile != "" || o.Etcd.CertFile != "" || o.Etcd.KeyFile != "" || o.Etcd.Prefix != system.DefaultOptions().Etcd.Prefix {
			return usageError{errors.New("--etcd-cafile, --etcd-certfile, --etcd-keyfile and --etcd-prefix need --etcd-servers")}
		}
		if o.QuotaBytes < leastQuota {
			return usageError{fmt.Errorf("--quota-backend-bytes %d is less than %d, which is too small for any control plane", o.QuotaBytes, leastQuota)}
		}
		return nil
	}
	if o.Ephemeral {
		return usageError{errors.New("--ephemeral keeps no data, and an etcd of --etcd-servers keeps it: choose one")}
	}
	if err := o.Etcd.Validate(); err != nil {
		return usageError{fmt.Errorf("--etcd-servers: %w", err)}
	}
	return nil
}

// upControllers are the controllers of this process, and the admission plug-ins.
type upControllers struct {
	collector bool
	names     []string
	order     deletionOrder
}

func upControllerNames() []string {
	return []string{controllerGC, controllerNamespace, controllerProtection, controllerWorkloads, controllerScheduler}
}

func (g *upControllers) add(flags *pflag.FlagSet, o *system.Options) {
	flags.BoolVar(&g.collector, "enable-garbage-collector", true, "expect a garbage collector, in this process or another one")
	flags.StringSliceVar(&g.names, "controllers", upControllerNames(), "controllers to run in this process: gc, namespace, protection, workloads, scheduler; none if empty")
	flags.StringSliceVar(&o.DisableAdmissionPlugins, "disable-admission-plugins", nil, "admission plug-ins to disable: "+strings.Join(system.OptionalPlugins(), ", "))
}

func (g *upControllers) complete(o *system.Options) error {
	if err := checkControllers(g.names, upControllerNames()...); err != nil {
		return err
	}
	for _, name := range o.DisableAdmissionPlugins {
		if !slices.Contains(system.OptionalPlugins(), name) {
			return usageError{fmt.Errorf("--disable-admission-plugins %s: choose from %s", name, strings.Join(system.OptionalPlugins(), " and "))}
		}
	}
	o.GarbageCollector = system.Disabled
	if g.collector {
		o.GarbageCollector = g.placement(controllerGC, system.Elsewhere)
	}
	o.NamespaceController = g.placement(controllerNamespace, system.Elsewhere)
	o.NamespaceDeletionOrder = g.order.value
	o.VolumeProtection = g.placement(controllerProtection, system.Disabled)
	o.Workloads = g.placement(controllerWorkloads, system.Disabled)
	o.Scheduler = slices.Contains(g.names, controllerScheduler)
	return nil
}

// placement returns InProcess for a controller that --controllers names, and the given placement for another one.
func (g *upControllers) placement(controller string, otherwise system.Placement) system.Placement {
	if slices.Contains(g.names, controller) {
		return system.InProcess
	}
	return otherwise
}

// upNodes are the nodes of this process.
type upNodes struct{}

func (*upNodes) add(flags *pflag.FlagSet, o *system.Options) {
	defaults := system.DefaultOptions()
	flags.IntVar(&o.Nodes.Nodes, "nodes", defaults.Nodes.Nodes, "number of nodes; with --node-runtime=cri 1 or 0")
	flags.StringVar(&o.Nodes.Runtime, "node-runtime", defaults.Nodes.Runtime, "container runtime of pods: simulated (no containers) or cri (a runtime on this machine)")
	flags.StringVar(&o.Nodes.Socket, "cri-socket", "", "socket of the runtime with --node-runtime=cri, such as unix:///run/containerd/containerd.sock")
	flags.DurationVar(&o.NodeGrace, "node-monitor-grace-period", defaults.NodeGrace, "time without a heartbeat after which a node is not ready")
	flags.BoolVar(&o.MovableNodeClock, "movable-node-clock", false, "let administrators move the clock of simulated nodes forward, for tests")
}

func (*upNodes) complete(o *system.Options) error {
	if err := o.Nodes.Validate("--node-runtime"); err != nil {
		return usageError{err}
	}
	if o.MovableNodeClock && o.Nodes.Runtime == nodeconfig.CRI {
		return usageError{errors.New("--movable-node-clock is for simulated nodes: real containers use the real clock")}
	}
	if o.NodeGrace < leastLease {
		return usageError{fmt.Errorf("--node-monitor-grace-period %s is less than %s", o.NodeGrace, leastLease)}
	}
	return nil
}

// upKubeconfigs are the files for the kubeconfigs of users.
type upKubeconfigs struct{}

func (*upKubeconfigs) add(flags *pflag.FlagSet, o *system.Options) {
	flags.StringVar(&o.WriteKubeconfig, "write-kubeconfig", "", "file to add the entries of the kubeconfig to; its other entries are kept")
	flags.StringVar(&o.WriteCollectorKubeconfig, "write-collector-kubeconfig", "", "file for a kubeconfig for coppice collect, with the rights of the garbage collector only")
	flags.StringToStringVar(&o.WriteNodeKubeconfigs, "write-node-kubeconfig", nil, "file for a kubeconfig of the node NAME, as NAME=FILE, for coppice node; may be repeated")
}

// complete checks that no two users share a file: one must not get the other's credential.
func (*upKubeconfigs) complete(o *system.Options) error {
	if o.WriteCollectorKubeconfig != "" && o.WriteCollectorKubeconfig == o.WriteKubeconfig {
		return usageError{fmt.Errorf("--write-kubeconfig and --write-collector-kubeconfig both name %s: the collector's must not be the administrator's", o.WriteCollectorKubeconfig)}
	}
	taken := map[string]string{o.WriteKubeconfig: "--write-kubeconfig", o.WriteCollectorKubeconfig: "--write-collector-kubeconfig"}
	for _, name := range slices.Sorted(maps.Keys(o.WriteNodeKubeconfigs)) {
		path := o.WriteNodeKubeconfigs[name]
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
		if slices.Contains(o.Nodes.Names(), name) {
			return usageError{fmt.Errorf("--write-node-kubeconfig %s: --nodes %d has a node of that name in this process", name, o.Nodes.Nodes)}
		}
	}
	return nil
}

// upAudit is the audit log.
type upAudit struct{ isSet bool } // --audit-log-path was given

func (*upAudit) add(flags *pflag.FlagSet, o *system.Options) {
	flags.StringVar(&o.AuditPath, "audit-log-path", "", `file of the audit log, "-" for stdout, "" for none (default: audit.log in the data directory)`)
}

// complete sets NoAuditLog if the flag is set to the empty string.
func (g *upAudit) complete(o *system.Options) error {
	if g.isSet && o.AuditPath == "" {
		o.AuditPath = system.NoAuditLog
	}
	return nil
}

// upProtect are the default modes of protection.
type upProtect struct{ defaults []string }

func (g *upProtect) add(flags *pflag.FlagSet, _ *system.Options) {
	flags.StringSliceVar(&g.defaults, "protect", nil, "default mode of protection of a resource, such as customresourcedefinitions=unused; may be repeated")
}

func (g *upProtect) complete(o *system.Options) (err error) {
	if o.Protect, err = system.ProtectDefaults(g.defaults); err != nil {
		return usageError{fmt.Errorf("--protect: %w", err)}
	}
	return nil
}

// upFaults are the faults that clients meet.
type upFaults struct{ plan string }

func (g *upFaults) add(flags *pflag.FlagSet, o *system.Options) {
	flags.StringVar(&g.plan, "faults", "", "faults that clients meet: mild, realistic, harsh, or a list, such as 'seed=7; watch-lag delay=1s' (default: $"+faults.Variable+")")
	flags.BoolVar(&o.AllowFaults, "allow-faults", false, "allow faults although the control plane keeps its data")
}

func (g *upFaults) complete(o *system.Options) (err error) {
	plan, source := g.plan, "--faults"
	if plan == "" {
		plan, source = os.Getenv(faults.Variable), "$"+faults.Variable
	}
	if o.Faults, err = faults.ParsePlan(plan); err != nil {
		return usageError{fmt.Errorf("%s: %w", source, err)}
	}
	if len(o.Faults.Faults) > 0 && !o.Ephemeral && !o.AllowFaults {
		return usageError{fmt.Errorf("%s is for control planes with --ephemeral: this one keeps its data, and needs --allow-faults, too", source)}
	}
	return nil
}
