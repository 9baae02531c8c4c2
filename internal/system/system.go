// Package system assembles a control plane in one process. It contains the wiring and the boot
// order, and no behavior of its own; options.go lists the options.
//
// Run is the boot order: lock the data directory, open the port, open the store, issue the
// certificates, serve the API, start the controllers, report ready. It stops in reverse order.
//
// This package sets nothing process-wide (GC, GOMAXPROCS, feature gates), because a process may run several
// control planes, as tests do. Package cmd sets these.
package system

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/apiserver"
	"github.com/coppice-dev/coppice/internal/apiserver/auth"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/bootstrappolicy"
	"github.com/coppice-dev/coppice/internal/apiserver/storage"
	"github.com/coppice-dev/coppice/internal/collect/election"
)

// Plane is a ready control plane.
type Plane struct {
	// Server is its URL.
	Server string
	// Kubeconfig is the administrator's kubeconfig file.
	Kubeconfig string
	// Config is the administrator's configuration for clients in this process, which need no socket.
	Config *rest.Config
	// Started is the duration of the start.
	Started time.Duration

	// keepFresh renews the kubeconfigs before they expire, until ctx ends.
	keepFresh func(ctx context.Context)
}

// Run runs a control plane until ctx ends. It calls ready once, when the control plane serves. An
// error means that it could not start, or that it failed.
func Run(ctx context.Context, o Options, ready func(Plane)) error {
	began := time.Now()
	o, err := o.complete()
	if err != nil {
		return err
	}
	dir, err := openDir(o)
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
	if o.bin, err = openBin(o, dir.dataDir, store); err != nil {
		listener.Close()
		return err
	}
	defer o.closeBin(ctx)
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

// assemble creates the certificates, the API server and the kubeconfig.
func assemble(ctx context.Context, o Options, dir *workDir, listener net.Listener, store *storage.Store) (Plane, *apiserver.Server, error) {
	authority, err := loadAuthority(ctx, o, dir, store)
	if err != nil {
		return Plane{}, nil, err
	}
	api, err := apiserver.New(ctx, apiserver.Config{
		Listener: listener, Store: store, Authority: authority, ServingNames: o.servingNames(), AdvertiseAddress: o.AdvertiseAddress,
		Version: o.Version, Audit: o.audit,
		Features: o.features(), Services: o.Services, Now: time.Now, Log: o.Log,
		External: o.Server.External, DisabledPlugins: o.Server.DisabledPlugins, AdmissionConfig: o.Server.AdmissionConfig,
		AuditPolicy: o.Server.AuditPolicy, MaxRequests: o.Server.MaxRequests, MaxWrites: o.Server.MaxWrites, ConnectionGrace: o.Server.ConnectionGrace,
	})
	if err != nil {
		return Plane{}, nil, err
	}
	o.serveBin(api)
	plane := Plane{Server: o.serverURL(listener.Addr()), Kubeconfig: dir.join(kubeconfigFile), Config: api.Client()}
	if o.references != nil {
		o.references.server.Store(&plane.Server)
	}
	plane.keepFresh, err = writeCredentials(o, authority, plane)
	if err != nil {
		return Plane{}, nil, err
	}
	return plane, api, nil
}

// writeCredentials writes the kubeconfigs, and returns a function that renews them until its
// context ends.
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

// serve runs the API server and, once it is ready, the controllers, until ctx ends or one of them fails.
// The controllers stop first: they cannot work without the server.
func serve(ctx context.Context, o Options, api *apiserver.Server, shared bool, ready func()) error {
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	served := make(chan error, 1)
	go func() { served <- api.Run(serving) }()

	group, working := errgroup.WithContext(ctx)
	group.Go(func() error { return o.recycle(working) })
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

// control runs the controllers. If several control planes may share an etcd, only the leader runs
// them.
func control(ctx context.Context, o Options, api *apiserver.Server, shared bool, ready func()) error {
	group, ctx := errgroup.WithContext(ctx)
	diagnostics := &diagnostics{}
	diagnostics.serve(api)
	if o.nodeClock != nil {
		api.Handle(nodeClockPath, nodeClock{o.nodeClock})
	}
	switch {
	case !o.runsControllers():
	case shared:
		elector, err := api.LeaderElection()
		if err != nil {
			return err
		}
		lease := election.Lease{Namespace: metav1.NamespaceSystem, Name: bootstrappolicy.ControllersLease, Times: election.Brisk(), Log: o.Log}
		group.Go(func() error {
			return lease.RunAlways(ctx, elector, &diagnostics.role, func(ctx context.Context) error {
				return runControllers(ctx, o, api, diagnostics, func() {})
			})
		})
	default:
		// After ready, callers may request records at once.
		answering := make(chan struct{})
		group.Go(func() error {
			return runControllers(ctx, o, api, diagnostics, func() { close(answering) })
		})
		select {
		case <-answering:
		case <-ctx.Done():
			return group.Wait()
		}
	}
	ready()
	return group.Wait()
}

// workDir is the data directory of this run.
type workDir struct {
	*dataDir
	remove bool
}

func (d *workDir) close() {
	d.unlock()
	if d.remove {
		_ = os.RemoveAll(d.path)
	}
}

// openDir locks the data directory, or creates a temporary one.
func openDir(o Options) (*workDir, error) {
	path := o.DataDir
	if o.Ephemeral {
		temporary, err := makeTempDir(o.TempDir)
		if err != nil {
			return nil, fmt.Errorf("make a directory for this run: %w", err)
		}
		path = temporary
	}
	dir, err := lockDir(path)
	if err != nil {
		return nil, err
	}
	return &workDir{dataDir: dir, remove: o.Ephemeral}, nil
}

// makeTempDir creates a directory in within, which it creates if necessary; by default in the system's
// directory of temporary files.
func makeTempDir(within string) (string, error) {
	if within != "" {
		if err := os.MkdirAll(within, 0o700); err != nil {
			return "", err
		}
	}
	return os.MkdirTemp(within, "coppice-*")
}

// DefaultDataDir returns the default data directory of the current user: $XDG_DATA_HOME/coppice, or
// else ~/.local/share/coppice.
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
