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
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/apiserver"
	"github.com/coppice-dev/coppice/internal/apiserver/auth"
	"github.com/coppice-dev/coppice/internal/collect/process"
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
}

// Run runs a control plane until ctx ends. It calls ready once, when the control plane serves. An
// error means that it could not start, or that it failed.
func Run(ctx context.Context, o Options, ready func(Plane)) error {
	began := time.Now()
	options, err := o.complete()
	if err != nil {
		return err
	}
	resources, err := open(ctx, options, began)
	defer resources.close(ctx)
	if err != nil {
		return err
	}
	plane, err := assemble(ctx, options, resources)
	if err != nil {
		return err
	}
	facts, keepFresh, err := plane.publish()
	if err != nil {
		return err
	}
	var renewing sync.WaitGroup
	ctx, stop := context.WithCancel(ctx)
	renewing.Go(func() { keepFresh(ctx) })
	defer renewing.Wait()
	defer stop()
	return plane.serve(ctx, func() {
		facts.Started = time.Since(began)
		ready(facts)
	})
}

// controlPlane is an assembled control plane.
type controlPlane struct {
	options completedOptions
	*resources
	authority   *auth.Authority
	api         *apiserver.Server
	companions  *companions
	diagnostics *diagnostics
	reset       *resetter
}

// assemble creates the certificates and the API server.
func assemble(ctx context.Context, o completedOptions, r *resources) (*controlPlane, error) {
	authority, err := loadAuthority(ctx, o, r.dir, r.store)
	if err != nil {
		return nil, err
	}
	companions := &companions{}
	api, err := apiserver.New(ctx, apiserver.Config{
		Listener: r.listener, Store: r.store, Authority: authority, ServingNames: r.servingNames(o), AdvertiseAddress: o.AdvertiseAddress,
		Version: o.Version, Audit: r.audit, Features: o.features, Companions: companions.get, Services: o.Services, Protect: o.Protect, Now: time.Now, Log: o.Log,
		Confirm:  o.Confirm,
		Faults:   apiserver.Faults{Plan: o.Faults, Refused: faultsRefused(o.Options)},
		External: o.Server.External, DisabledPlugins: o.Server.DisabledPlugins, AdmissionConfig: o.Server.AdmissionConfig,
		AuditPolicy: o.Server.AuditPolicy, MaxRequests: o.Server.MaxRequests, MaxWrites: o.Server.MaxWrites, ConnectionGrace: o.Server.ConnectionGrace,
	})
	if err != nil {
		return nil, err
	}
	serveBin(api, r.bin)
	return &controlPlane{
		options: o, resources: r, authority: authority, api: api, companions: companions, diagnostics: &diagnostics{},
		reset: newResetter(o, api, r.store),
	}, nil
}

// publish writes the kubeconfigs. It returns what Run tells its caller, and a function that renews the
// kubeconfigs until its context ends.
func (p *controlPlane) publish() (facts Plane, keepFresh func(context.Context), err error) {
	facts = Plane{Server: p.options.serverURL(p.listener.Addr()), Kubeconfig: p.dir.join(kubeconfigFile), Config: p.api.Client()}
	if p.machine != nil {
		p.machine.references.server.Store(&facts.Server)
	}
	keepFresh, err = writeCredentials(p.options, p.authority, facts)
	return facts, keepFresh, err
}

// writeCredentials writes the kubeconfigs, and returns a function that renews them until its
// context ends.
func writeCredentials(o completedOptions, authority *auth.Authority, plane Plane) (keepFresh func(context.Context), err error) {
	// Links to the data directory were followed when it was locked, whoever made them.
	dataDir, err := filepath.EvalSymlinks(filepath.Dir(plane.Kubeconfig))
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	all := []credentials{{authority, plane.Server, administrator(), KubeconfigPath(dataDir), []string{o.WriteKubeconfig}, o.Log}}
	if o.WriteCollectorKubeconfig != "" {
		all = append(all, credentials{authority, plane.Server, collectorOutside(), "", []string{o.WriteCollectorKubeconfig}, o.Log})
	}
	for name, path := range o.WriteNodeKubeconfigs {
		all = append(all, credentials{authority, plane.Server, nodeOutside(name), "", []string{path}, o.Log})
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
func (p *controlPlane) serve(ctx context.Context, ready func()) error {
	p.handlePaths()
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	served := make(chan error, 1)
	go func() { served <- p.api.Run(serving) }()

	group, working := errgroup.WithContext(ctx)
	group.Go(func() error { return recycle(working, p.bin) })
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
		case <-p.api.Ready():
		case <-working.Done():
			return nil
		}
		return p.control(working, ready)
	})
	err := group.Wait()
	stopServing()
	return errors.Join(err, <-served)
}

// control runs the controllers. If several control planes may share an etcd, only the leader runs
// them.
func (p *controlPlane) control(ctx context.Context, ready func()) error {
	group, ctx := errgroup.WithContext(ctx)
	switch {
	case !p.options.runsControllers():
	case p.store.Shared():
		group.Go(func() error { return p.elect(ctx) })
	default:
		// After ready, callers may request records at once.
		answering := make(chan struct{})
		answer := sync.OnceFunc(func() { close(answering) })
		group.Go(func() error {
			return p.api.RunControllers(ctx, func(ctx context.Context) error {
				controllers, err := newControllers(p.options, p.api)
				if err != nil {
					return err
				}
				return p.runControllers(ctx, controllers, process.Controllers.Run, answer)
			})
		})
		select {
		case <-answering:
		case <-ctx.Done():
			return group.Wait()
		}
	}
	if p.options.Ephemeral {
		if err := p.reset.start(ctx); err != nil {
			group.Go(func() error { return err })
			return group.Wait()
		}
	}
	ready()
	return group.Wait()
}

// handlePaths serves the paths of the control plane. A client may request them as soon as the API server says that it is
// ready, before the controllers run.
func (p *controlPlane) handlePaths() {
	p.diagnostics.serve(p.api)
	if p.machine != nil && p.machine.clock != nil {
		p.api.Handle(nodeClockPath, nodeClock{p.machine.clock})
	}
	var reset http.Handler = p.reset
	if !p.options.Ephemeral {
		reset = http.HandlerFunc(notResettable)
	}
	p.api.Handle(resetPath, usersOnly(reset))
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
