package system

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"time"

	"github.com/coppice-dev/coppice"
	"github.com/coppice-dev/coppice/internal/agent/nodeconfig"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/core"
	"github.com/coppice-dev/coppice/internal/apiserver/storage"
	"github.com/coppice-dev/coppice/internal/version"
)

// Placement says where a controller runs.
type Placement int

const (
	// InProcess says that the controller runs in this process, if that is the leader.
	InProcess Placement = iota
	// Elsewhere says that another process runs the controller, and the API server counts on it.
	Elsewhere
	// Disabled says that no controller runs, and the API server does nothing that one would have to
	// follow up, such as to add a finalizer that only it removes.
	Disabled
)

// OwnerReferencesPlugin is the admission plug-in that refuses owner references which are
// invalid or which their writer has no right to. It is the only one that can be disabled.
const OwnerReferencesPlugin = "OwnerReferencesPermissionEnforcement"

// NoAuditLog is the AuditPath of a control plane that writes no audit log.
const NoAuditLog = os.DevNull

// Options say how a control plane is to run. The zero value, with a DataDir or with
// Ephemeral, is a good one: every controller runs in this process, without nodes.
type Options struct {
	// DataDir keeps the objects, the certificate authority and the kubeconfig.
	DataDir string
	// Ephemeral keeps them in a directory that is made for this run and removed at its end;
	// DataDir is not used.
	Ephemeral bool
	// Etcd is the cluster to keep the objects in, which other control planes may share;
	// with no Servers, an etcd in this process keeps them in DataDir.
	Etcd storage.Cluster
	// QuotaBytes is how large the database of the etcd in this process may grow;
	// storage.DefaultQuota if 0.
	QuotaBytes int64
	// PKIDir keeps the keys that all control planes on one etcd must share; in DataDir if
	// empty.
	PKIDir string

	// BindAddress is the IP address to listen on; loopback if nil.
	BindAddress net.IP
	// Port to listen on; a free one if 0.
	Port int
	// ExternalHost is the name or IP address by which clients reach the server when that is
	// not its own address, with a port where that differs. The kubeconfig names it.
	ExternalHost string

	// WriteKubeconfig is one more file to write the kubeconfig to; none if empty.
	WriteKubeconfig string
	// WriteCollectorKubeconfig is a file for the kubeconfig of a collector in another
	// process, with the same rights as the one in this process; none if empty. It must not
	// be WriteKubeconfig.
	WriteCollectorKubeconfig string
	// WriteNodeKubeconfigs are files for the kubeconfigs of nodes in processes of their own,
	// by the name of the node. None of them may be another of these files.
	WriteNodeKubeconfigs map[string]string

	// GarbageCollector says where the garbage collector runs. If it is Disabled, deletions
	// ask for no collector's finalizers.
	GarbageCollector Placement
	// NamespaceController says where terminating namespaces are emptied.
	NamespaceController Placement
	// NamespaceDeletionOrder is the order in which the contents of a namespace are deleted;
	// coppice.DefaultDeletionOrder if empty.
	NamespaceDeletionOrder coppice.DeletionOrder
	// VolumeProtection says whether volumes and volume claims in use are protected. The
	// controller runs InProcess or not at all.
	VolumeProtection Placement
	// Workloads says whether the controllers that make pods run: those of deployments,
	// replica sets and so on.
	Workloads Placement
	// Nodes are the nodes of this process; none if Nodes.Nodes is 0. Dir, Version and Log are
	// set by Run.
	Nodes nodeconfig.Options
	// NodeGrace is how long a node may be silent before it is not ready;
	// nodelifecycle.DefaultGrace if 0.
	NodeGrace time.Duration
	// Scheduler assigns pods to nodes.
	Scheduler bool

	// DisableAdmissionPlugins names admission plug-ins to do without: OwnerReferencesPlugin.
	DisableAdmissionPlugins []string
	// Services are the ranges that services get their addresses and ports from; zero: the
	// usual ones.
	Services core.ServiceRanges
	// AuditPath is the file of the audit log, "-" for standard output, or NoAuditLog;
	// audit.log in the data directory if empty.
	AuditPath string
	// Version is the Kubernetes version to report, with a leading v; version.Kubernetes if
	// empty.
	Version string
	// Log is discarded if nil.
	Log *slog.Logger

	audit      io.Writer         // set by Run, as is what follows
	machine    *nodeconfig.Setup // nil without nodes
	references *references       // of the pods on machine; nil without nodes
}

// complete checks the options and fills in the defaults.
func (o Options) complete() (Options, error) {
	if o.DataDir == "" && !o.Ephemeral {
		return o, errors.New("system: a DataDir is required, or Ephemeral")
	}
	for _, name := range o.DisableAdmissionPlugins {
		if name != OwnerReferencesPlugin {
			return o, errors.New("system: the admission plug-in " + name + " cannot be disabled")
		}
	}
	if o.Version == "" {
		o.Version = version.Kubernetes()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

func (o Options) disablesAdmission(plugin string) bool {
	return slices.Contains(o.DisableAdmissionPlugins, plugin)
}

// runsControllers reports whether any controller may run in this process.
func (o Options) runsControllers() bool {
	return o.runsCoppice() || o.VolumeProtection == InProcess || o.Workloads == InProcess || o.Nodes.Nodes > 0 || o.Scheduler
}

// runsCoppice reports whether the garbage collector or the namespace controller runs here.
func (o Options) runsCoppice() bool {
	return o.GarbageCollector == InProcess || o.NamespaceController == InProcess
}
