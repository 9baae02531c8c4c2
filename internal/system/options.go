package system

import (
	"cmp"
	"errors"
	"log/slog"
	"net"
	"os"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/apiserver"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/accesscontrol"
	"github.com/coppice-dev/coppice/internal/apiserver/etcd"
	"github.com/coppice-dev/coppice/internal/apiserver/faults"
	"github.com/coppice-dev/coppice/internal/apiserver/recyclebin"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/core"
	"github.com/coppice-dev/coppice/internal/controller/nodelifecycle"
	"github.com/coppice-dev/coppice/internal/node/agent/nodeconfig"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/tools/version"
)

// Placement determines where a controller runs.
type Placement int

const (
	// InProcess runs the controller in this process, if it is the leader.
	InProcess Placement = iota
	// Elsewhere relies on another process to run the controller.
	Elsewhere
	// Disabled means that the controller does not run anywhere. The API server then does nothing that
	// requires the controller, such as adding a finalizer that only the controller removes.
	Disabled
)

// The admission plug-ins that can be disabled.
const (
	// OwnerReferencesPlugin rejects owner references that are invalid or for which their writer lacks a
	// permission.
	OwnerReferencesPlugin = "OwnerReferencesPermissionEnforcement"
	// ServiceAccountPlugin rejects pods whose service account does not exist, and mounts a token into the
	// others. It is also disabled if Workloads is Disabled: one of the workload controllers creates the
	// accounts.
	ServiceAccountPlugin = "ServiceAccount"
)

// OptionalPlugins returns the admission plug-ins that can be disabled.
func OptionalPlugins() []string { return []string{OwnerReferencesPlugin, ServiceAccountPlugin} }

// NoAuditLog is the AuditPath of a control plane that writes no audit log.
const NoAuditLog = os.DevNull

// Options configure a control plane. The zero value, with a DataDir or with Ephemeral, is useful:
// every controller runs in this process, without nodes.
type Options struct {
	// DataDir is the directory of the objects, the certificate authority and the kubeconfig.
	DataDir string
	// Ephemeral uses a temporary directory instead of DataDir, and removes it at the end.
	Ephemeral bool
	// TempDir is the parent directory of the temporary directory of an Ephemeral control plane. Default:
	// the system's directory of temporary files.
	TempDir string
	// Etcd is the cluster for the objects, which other control planes may share. If it has no Servers, an
	// etcd in this process stores them in DataDir.
	Etcd etcd.Cluster
	// QuotaBytes is the maximum size of the database of the etcd in this process. Default:
	// etcd.DefaultQuota.
	QuotaBytes int64
	// PKIDir contains the keys that all control planes on one etcd must share. Default: DataDir.
	PKIDir string

	// BindAddress is the IP address to listen on. Default: loopback.
	BindAddress net.IP
	// Port is the port to listen on; a free one if 0.
	Port int
	// AdvertiseAddress is the address at which pods and nodes reach the server, in the Endpoints of the
	// service default/kubernetes. Default: BindAddress, or, if that is loopback or unspecified, the address
	// of the machine's default route.
	AdvertiseAddress net.IP
	// ExternalHost is the name or IP address, with an optional port, at which clients reach the
	// server if that is not its own address. The kubeconfig contains it.
	ExternalHost string

	// WriteKubeconfig is an additional file for the kubeconfig; none if empty.
	WriteKubeconfig string
	// WriteCollectorKubeconfig is the file for the kubeconfig of a collector in another process,
	// with the same permissions as the one in this process; none if empty. It must not be
	// WriteKubeconfig.
	WriteCollectorKubeconfig string
	// WriteNodeKubeconfigs are the files for the kubeconfigs of nodes in other processes, by node name.
	// They must differ from each other and from the files above.
	WriteNodeKubeconfigs map[string]string

	// GarbageCollector determines where the garbage collector runs. If it is Disabled, deletions do not add
	// the collector's finalizers.
	GarbageCollector Placement
	// NamespaceController determines where the controller of terminating namespaces runs.
	NamespaceController Placement
	// NamespaceDeletionOrder is the order in which the contents of a namespace are deleted.
	// Default: namespaces.DefaultStages.
	NamespaceDeletionOrder [][]schema.GroupResource
	// VolumeProtection determines where the controller runs that removes the finalizers of volumes and
	// volume claims that are not in use. Unless it is Disabled, new ones get these finalizers.
	VolumeProtection Placement
	// Workloads determines where the workload controllers run, such as those for Deployments and
	// ReplicaSets. Unless it is Disabled, new nodes are tainted until one of these controllers finds the
	// node ready, and pods need a service account, which one of them creates. If it is Elsewhere, this
	// process still maintains the IPAddresses of services: in Kubernetes, the API server does that.
	Workloads Placement
	// Nodes are the nodes of this process; none if Nodes.Nodes is 0. Run sets Dir, Version, Log, Objects and
	// Clock in a copy.
	Nodes nodeconfig.Options
	// MovableNodeClock lets administrators move the clock of the simulated nodes forward, for tests.
	MovableNodeClock bool
	// NodeGrace is how long a node may be silent before it becomes not ready. Default:
	// nodelifecycle.DefaultGrace.
	NodeGrace time.Duration
	// Scheduler runs the scheduler, which assigns pods to nodes.
	Scheduler bool

	// DisableAdmissionPlugins lists admission plug-ins to disable, from OptionalPlugins.
	DisableAdmissionPlugins []string
	// Server contains options that only the flags of kube-apiserver set.
	Server ServerOptions
	// Services are the ranges of service addresses and ports. The zero value means the default
	// ranges.
	Services core.ServiceRanges
	// AuditPath is the file of the audit log, "-" for standard output, or NoAuditLog. Default:
	// audit.log in the data directory.
	AuditPath string
	// Protect are the modes of protection of objects without a label (R28).
	Protect protection.Defaults
	// Faults are the faults that clients meet from the beginning, for tests of clients. With a DataDir they need
	// AllowFaults, with which administrators may also set them over HTTP.
	Faults      faults.Plan
	AllowFaults bool
	// Recycle limits the deleted objects that are kept in the data directory for undo; the zero value keeps
	// none.
	Recycle recyclebin.Bounds
	// Confirm are the deletions that need no confirmation (R32). Default: no deletion needs one.
	Confirm protection.Limits
	// Version is the Kubernetes version to report, with a leading v. Default: version.Kubernetes.
	Version string
	// Log is the logger; nil discards everything.
	Log *slog.Logger
}

// ServerOptions are options of the API server that kube-apiserver has and coppice up does not.
type ServerOptions struct {
	// External is the authentication and authorization that files configure.
	External accesscontrol.External
	// DisabledPlugins are names of admission plug-ins to disable. Names of plug-ins that this server lacks
	// have no effect.
	DisabledPlugins []string
	// AdmissionConfig and AuditPolicy are the paths of an AdmissionConfiguration and of an audit policy;
	// none if empty.
	AdmissionConfig, AuditPolicy string
	// TrustAuditDir lets root write the audit log into any directory, as kube-apiserver does. Otherwise, the directory of a
	// given AuditPath must be one where only root can replace the file. Tests often run in a directory of another user.
	TrustAuditDir bool
	// MaxRequests and MaxWrites limit the concurrent reads and the concurrent writes; 0: the defaults.
	MaxRequests, MaxWrites int
	// ConnectionGrace is how long connections may take to close when the server stops; 0: the default, or with
	// Ephemeral 50 ms, because nobody comes back to such a server.
	ConnectionGrace time.Duration
}

// completedOptions are valid options with their defaults set. Only complete makes them.
type completedOptions struct {
	Options
	features apiserver.Features
}

// ephemeralGrace is how long the connections of an Ephemeral control plane may take to close.
const ephemeralGrace = 50 * time.Millisecond

// complete validates the options and sets the defaults.
func (o Options) complete() (completedOptions, error) {
	if o.DataDir == "" && !o.Ephemeral {
		return completedOptions{}, errors.New("system: a DataDir is required, or Ephemeral")
	}
	for _, name := range o.DisableAdmissionPlugins {
		if !slices.Contains(OptionalPlugins(), name) {
			return completedOptions{}, errors.New("system: the admission plug-in " + name + " cannot be disabled")
		}
	}
	if len(o.Faults.Faults) > 0 && faultsRefused(o) != "" {
		return completedOptions{}, errors.New("system: " + faultsRefused(o))
	}
	if o.Version == "" {
		o.Version = version.Kubernetes()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.BindAddress == nil {
		o.BindAddress = net.IPv4(127, 0, 0, 1)
	}
	o.NodeGrace = cmp.Or(o.NodeGrace, nodelifecycle.DefaultGrace)
	if o.Ephemeral {
		o.Server.ConnectionGrace = cmp.Or(o.Server.ConnectionGrace, ephemeralGrace)
	}
	return completedOptions{Options: o, features: o.features()}, nil
}

// faultsRefused returns why a control plane has no faults; empty: it may have them.
func faultsRefused(o Options) string {
	if o.Ephemeral || o.AllowFaults {
		return ""
	}
	return "this control plane keeps its data: start it with --allow-faults if faults are to happen to its clients"
}

// features returns the features of the API server: the controllers that run here or elsewhere, and the
// plug-ins that are not disabled.
func (o Options) features() apiserver.Features {
	plugin := func(name string) bool { return !slices.Contains(o.DisableAdmissionPlugins, name) }
	return apiserver.Features{
		Collector: o.GarbageCollector != Disabled, VolumeProtection: o.VolumeProtection != Disabled,
		ServiceAccounts: o.Workloads != Disabled && plugin(ServiceAccountPlugin), NodeTaints: o.Workloads != Disabled,
		OwnerChecks: plugin(OwnerReferencesPlugin),
	}
}

// runsControllers reports whether any controller may run in this process.
func (o completedOptions) runsControllers() bool {
	return o.runsCoppice() || o.VolumeProtection == InProcess || o.Workloads != Disabled || o.Nodes.Nodes > 0 || o.Scheduler
}

// runsCoppice reports whether the garbage collector or the namespace controller runs in this
// process.
func (o completedOptions) runsCoppice() bool {
	return o.GarbageCollector == InProcess || o.NamespaceController == InProcess
}
