// Package system puts a control plane together in one process. It holds the wiring
// and the boot order, and no behaviour of its own.
//
// Run is the boot order: take the data directory, open the port, open the store,
// make the certificates, serve the API, start the controllers, say that it is
// ready. On the way out it goes backwards.
package system

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/agent/machine"
	"github.com/coppice-dev/coppice/internal/apiserver"
	"github.com/coppice-dev/coppice/internal/apiserver/auth"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/rbac"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/core"
	"github.com/coppice-dev/coppice/internal/apiserver/storage"
	"github.com/coppice-dev/coppice/internal/election"
)

// Options say how a control plane is to run. The zero value, with a DataDir, is
// a good one.
type Options struct {
	// DataDir keeps the objects, the certificate authority and the kubeconfig.
	DataDir string
	// Ephemeral keeps them in a directory that is made for this run and removed at
	// its end; DataDir is not used.
	Ephemeral bool
	// Etcd is the cluster to keep the objects in, which other control planes may share;
	// with no Servers, an etcd in this process keeps them in DataDir.
	Etcd storage.Cluster
	// QuotaBytes is how large the database of the etcd in this process may grow; the most
	// that etcd recommends if 0.
	QuotaBytes int64
	// PKIDir keeps the keys that all control planes on one etcd must share; in DataDir
	// if empty.
	PKIDir string
	// ExternalHost is what clients reach the server by when that is not its own address:
	// a name or an IP address, with a port where that differs. The kubeconfig names it.
	ExternalHost string
	// WriteKubeconfig is one more file to put the kubeconfig into; none if empty.
	WriteKubeconfig string
	// WriteCollectorKubeconfig is a file for the kubeconfig of a collector in another
	// process, which may do there what it may do here; none if empty. It must not be
	// WriteKubeconfig.
	WriteCollectorKubeconfig string
	// WriteNodeKubeconfigs are files for the kubeconfigs of nodes in processes of their own,
	// by the name of the node. None of them may be another of these files.
	WriteNodeKubeconfigs map[string]string
	// BindAddress is the IP address to listen on; loopback if nil.
	BindAddress net.IP
	// Port to listen on; a free one if 0.
	Port int
	// CollectorDisabled runs the API server without a garbage collector.
	CollectorDisabled bool
	// CollectorElsewhere runs none in this process, but the server works with one as if
	// it did: another process is to run coppice collect.
	CollectorElsewhere bool
	// NamespacesElsewhere leaves terminating namespaces to another process.
	NamespacesElsewhere bool
	// NamespaceWaves is the order in which the contents of a namespace go; see coppice.Options.
	NamespaceWaves string
	// ProtectionDisabled runs without the protection of claims and volumes that are in use.
	ProtectionDisabled bool
	// WorkloadsDisabled runs without the controllers that make pods: those of deployments,
	// replica sets and so on.
	WorkloadsDisabled bool
	// Nodes are the nodes of this process; Dir, Version and Log are set by Run.
	Nodes machine.Options
	// NodeGrace is how long a node may be silent before it is not ready; nodes.DefaultGrace
	// if 0.
	NodeGrace time.Duration
	// Scheduler puts pods on nodes.
	Scheduler bool
	// OwnersUnchecked admits owner references that make no sense or that the writer has
	// no right to.
	OwnersUnchecked bool
	// Services are where services get their addresses from; zero: the usual ranges.
	Services core.ServiceRanges
	// AuditPath is the file of the audit log, "-" for standard output; audit.log in the
	// data directory if empty.
	AuditPath string
	// AuditDisabled writes no audit log.
	AuditDisabled bool
	// Version is the Kubernetes version to report: v1.37.2.
	Version string
	Log     *slog.Logger

	audit      io.Writer        // set by Run, as is what follows
	machine    *machine.Machine // nil without nodes
	references *references      // of the pods on machine; nil without nodes
}

// Plane is a control plane that is ready.
type Plane struct {
	// Server is its URL.
	Server string
	// Kubeconfig is a file with which kubectl is its administrator.
	Kubeconfig string
	// Config reaches it as administrator from within this process.
	Config *rest.Config
	// Started is how long the start took.
	Started time.Duration

	// keepFresh renews the kubeconfigs before they expire, until ctx ends.
	keepFresh func(ctx context.Context)
}

// Run runs a control plane until ctx ends. It calls ready once, when the control
// plane serves. An error means that it could not start, or broke.
func Run(ctx context.Context, o Options, ready func(Plane)) error {
	began := time.Now()
	dir, err := openDir(&o)
	if err != nil {
		return err
	}
	defer dir.close()
	closeMachine, err := openMachine(ctx, &o, dir)
	if err != nil {
		return err
	}
	defer closeMachine()
	return start(ctx, o, dir, began, ready)
}

// start opens the port and the store, and serves until ctx ends.
func start(ctx context.Context, o Options, dir *workDir, began time.Time, ready func(Plane)) error {
	listener, err := listen(ctx, o)
	if err != nil {
		return err
	}
	server := o.serverURL(listener.Addr())
	if err := dir.sign(holder{PID: os.Getpid(), Server: server, Started: began}); err != nil {
		listener.Close()
		return fmt.Errorf("write to the data directory: %w", err)
	}
	store, err := openStore(ctx, o, dir)
	if err != nil {
		listener.Close()
		return err
	}
	defer func() {
		if err := store.Close(); err != nil {
			o.Log.ErrorContext(ctx, "close the store", "error", err)
		}
	}()

	audit, err := openAudit(o, dir.dataDir)
	if err != nil {
		listener.Close()
		return err
	}
	if audit != nil {
		defer audit.Close()
		o.audit = audit
	}
	plane, api, err := assemble(ctx, o, dir, listener, store)
	if err != nil {
		listener.Close()
		return err
	}
	var renewing sync.WaitGroup
	ctx, stop := context.WithCancel(ctx)
	renewing.Go(func() { plane.keepFresh(ctx) })
	defer renewing.Wait()
	defer stop()
	return serve(ctx, o, api, store.Shared(), func() {
		plane.Started = time.Since(began)
		ready(plane)
	})
}

// assemble makes the certificates, the API server and the kubeconfig.
func assemble(ctx context.Context, o Options, dir *workDir, listener net.Listener, store *storage.Store) (Plane, *apiserver.Server, error) {
	authority, err := loadAuthority(ctx, o, dir, store)
	if err != nil {
		return Plane{}, nil, err
	}
	api, err := apiserver.New(ctx, apiserver.Config{
		Listener: listener, Store: store, Authority: authority, ServingNames: o.servingNames(), Version: o.Version, Audit: o.audit,
		CollectorDisabled: o.CollectorDisabled, ProtectionDisabled: o.ProtectionDisabled, Services: o.Services, OwnersUnchecked: o.OwnersUnchecked, Now: time.Now, Log: o.Log,
	})
	if err != nil {
		return Plane{}, nil, err
	}
	plane := Plane{Server: o.serverURL(listener.Addr()), Kubeconfig: dir.join(kubeconfigFile), Config: api.Client()}
	plane.keepFresh, err = writeCredentials(o, authority, plane)
	if err != nil {
		return Plane{}, nil, err
	}
	return plane, api, nil
}

// writeCredentials writes the kubeconfigs, and returns what renews them until its context ends.
func writeCredentials(o Options, authority *auth.Authority, plane Plane) (keepFresh func(context.Context), err error) {
	all := []credentials{{authority, plane.Server, administrator(), []string{plane.Kubeconfig, o.WriteKubeconfig}, o.Log}}
	if o.WriteCollectorKubeconfig != "" {
		all = append(all, credentials{authority, plane.Server, collectorOutside(), []string{o.WriteCollectorKubeconfig}, o.Log})
	}
	for name, path := range o.WriteNodeKubeconfigs {
		all = append(all, credentials{authority, plane.Server, nodeOutside(name), []string{path}, o.Log})
	}
	var issued []auth.Pair
	for _, c := range all {
		pair, err := c.issue(c.identity.context)
		if err != nil {
			return nil, err
		}
		issued = append(issued, pair)
	}
	return func(ctx context.Context) {
		var renewing sync.WaitGroup
		for i, c := range all {
			renewing.Go(func() { c.keepFresh(ctx, clock.RealClock{}, issued[i]) })
		}
		renewing.Wait()
	}, nil
}

// serve runs the API server and, once it is ready, the controllers, until ctx
// ends or one of them fails. The controllers stop first: they have nobody to
// talk to when the server is gone.
func serve(ctx context.Context, o Options, api *apiserver.Server, shared bool, ready func()) error {
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	served := make(chan error, 1)
	go func() { served <- api.Run(serving) }()

	group, working := errgroup.WithContext(ctx)
	group.Go(func() error {
		select {
		case err := <-served:
			served <- nil
			return errors.Join(errors.New("the API server stopped"), err)
		case <-working.Done():
			return nil
		}
	})
	group.Go(func() error {
		select {
		case <-api.Ready():
		case <-working.Done():
			return nil
		}
		return control(working, o, api, shared, ready)
	})
	err := group.Wait()
	stopServing()
	return errors.Join(err, <-served)
}

// control runs the controllers. Where several control planes may share an etcd, one of
// them does.
func control(ctx context.Context, o Options, api *apiserver.Server, shared bool, ready func()) error {
	group, ctx := errgroup.WithContext(ctx)
	diagnostics := &diagnostics{}
	diagnostics.serve(api)
	switch {
	case !o.controls():
	case shared:
		candidate, err := api.Candidate()
		if err != nil {
			return err
		}
		lease := election.Lease{Namespace: metav1.NamespaceSystem, Name: rbac.ControllersLease, Times: election.Brisk(), Log: o.Log}
		group.Go(func() error {
			return lease.RunAlways(ctx, candidate, &diagnostics.role, func(ctx context.Context) error {
				return runControllers(ctx, o, api, diagnostics)
			})
		})
	default:
		group.Go(func() error { return runControllers(ctx, o, api, diagnostics) })
	}
	ready()
	group.Go(func() error {
		ticks := time.NewTicker(settleTime)
		defer ticks.Stop()
		tend(ctx, ticks.C)
		return nil
	})
	return group.Wait()
}

// workDir is the data directory of this run.
type workDir struct {
	*dataDir
	remove bool
}

func (d *workDir) close() {
	d.release()
	if d.remove {
		_ = os.RemoveAll(d.path)
	}
}

// openDir takes the data directory, or makes one for this run.
func openDir(o *Options) (*workDir, error) {
	path := o.DataDir
	if o.Ephemeral {
		temporary, err := os.MkdirTemp("", "coppice-*")
		if err != nil {
			return nil, fmt.Errorf("make a directory for this run: %w", err)
		}
		path = temporary
	}
	dir, err := hold(path)
	if err != nil {
		return nil, err
	}
	return &workDir{dataDir: dir, remove: o.Ephemeral}, nil
}

// DefaultDataDir is where a user's control plane keeps its data when no other
// place is named: $XDG_DATA_HOME/coppice, else ~/.local/share/coppice.
func DefaultDataDir() (string, error) {
	if base := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(base) {
		return filepath.Join(base, "coppice"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no home directory to keep the data in; name a place with --data-dir: %w", err)
	}
	return filepath.Join(home, ".local", "share", "coppice"), nil
}
