package conformance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coppice-dev/coppice/internal/apiserver"
	"github.com/coppice-dev/coppice/internal/apiserver/auth"
	"github.com/coppice-dev/coppice/internal/apiserver/etcd"
	"github.com/coppice-dev/coppice/internal/cli/conformance/probe"
	"github.com/coppice-dev/coppice/internal/system"
	"github.com/coppice-dev/coppice/internal/tools/version"
)

// server is an API server under test, and its collector.
type server struct {
	*probe.Server

	// collector is ours, if it runs in this process and not in the server. It is
	// nil while it is stopped.
	collector *collector
	// inside is true if the server has a collector of its own.
	inside bool
	// stop ends the server; nil if it is not ours to end.
	stop func() error
}

// disabled returns the admission plug-ins that are off.
func (a admission) disabled() []string {
	if a == unchecked {
		return []string{system.OwnerReferencesPlugin}
	}
	return nil
}

// servers are the servers that were started so far. They live as long as the process.
var servers struct {
	sync.Mutex
	plane    [2]*server // ours, complete, by admission; guarded, as is all below
	bare     [2]*server // ours, without any controller, by admission
	external *server
}

// admission says how invalid owner references are treated: references to kinds that are not
// served, of cluster-scoped objects to namespaced ones, to the object itself, and thousands of
// them.
type admission int

const (
	// checked refuses them, as our server does by default.
	checked admission = iota
	// unchecked accepts them, as kube-apiserver does, and as ours can be configured to: for tests
	// of how the collector deals with them.
	unchecked
)

// sharedServer returns the server on which most tests run, with its collector running.
func sharedServer(a admission) (*server, error) {
	servers.Lock()
	defer servers.Unlock()
	if os.Getenv(kubeconfigVariable) == "" {
		if servers.plane[a] == nil {
			s, err := startPlane(a)
			if err != nil {
				return nil, err
			}
			servers.plane[a] = s
		}
		return servers.plane[a], nil
	}
	s, err := externalServerLocked()
	if err != nil {
		return nil, err
	}
	if s.collector == nil && !s.inside {
		if s.collector, err = startCollector(s.Config, collectingAndEmptying); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// quietServer returns a server where nothing collects, or nil if there is no such server.
func quietServer(a admission) (*server, error) {
	servers.Lock()
	defer servers.Unlock()
	if os.Getenv(kubeconfigVariable) == "" {
		if servers.bare[a] == nil {
			s, err := startBare(a)
			if err != nil {
				return nil, err
			}
			servers.bare[a] = s
		}
		return servers.bare[a], nil
	}
	s, err := externalServerLocked()
	if err != nil || s.inside {
		return nil, err
	}
	if s.collector != nil {
		s.collector.stop()
		s.collector = nil
	}
	return s, nil
}

func stopServers() error {
	servers.Lock()
	defer servers.Unlock()
	var failures []error
	for _, s := range append(append(servers.plane[:], servers.bare[:]...), servers.external) {
		if s == nil {
			continue
		}
		if s.collector != nil {
			s.collector.stop()
		}
		if s.stop != nil {
			failures = append(failures, s.stop())
		}
	}
	return errors.Join(failures...)
}

func newServer(config *rest.Config) (*server, error) {
	s, err := probe.NewServer(config)
	if err != nil {
		return nil, err
	}
	s.Patience = patience
	return &server{Server: s}, nil
}

// externalServerLocked returns the server that the environment names.
func externalServerLocked() (*server, error) {
	if servers.external != nil {
		return servers.external, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv(kubeconfigVariable))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kubeconfigVariable, err)
	}
	s, err := newServer(config)
	if err != nil {
		return nil, err
	}
	s.Upstream = probe.APIServer
	switch name := os.Getenv(collectorVariable); name {
	case "", "library":
	case "none":
		s.inside, s.Upstream = true, probe.APIServer|probe.Controllers
	default:
		return nil, fmt.Errorf("%s is %q, want library or none", collectorVariable, name)
	}
	servers.external = s
	return s, nil
}

// startPlane starts our control plane, as coppice up does, without the controllers of workloads.
func startPlane(a admission) (*server, error) {
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan system.Plane, 1), make(chan error, 1)
	go func() {
		ended <- system.Run(ctx, system.Options{Ephemeral: true, DisableAdmissionPlugins: a.disabled(), Workloads: system.Disabled, Log: slog.New(slog.DiscardHandler)},
			func(p system.Plane) { ready <- p })
	}()
	var plane system.Plane
	select {
	case plane = <-ready:
	case err := <-ended:
		cancel()
		return nil, fmt.Errorf("start our control plane: %w", err)
	}
	// Over its socket, as other clients connect.
	config, err := clientcmd.BuildConfigFromFlags("", plane.Kubeconfig)
	if err != nil {
		cancel()
		return nil, errors.Join(err, <-ended)
	}
	s, err := newServer(config)
	if err != nil {
		cancel()
		return nil, errors.Join(err, <-ended)
	}
	s.inside = true
	s.stop = func() error {
		cancel()
		return <-ended
	}
	return s, nil
}

// startBare starts our API server alone.
func startBare(a admission) (_ *server, err error) {
	dir, err := os.MkdirTemp("", "coppice-conformance-*")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var ending []func() error
	end := func() error {
		cancel()
		var failures []error
		for _, e := range slices.Backward(ending) {
			failures = append(failures, e())
		}
		return errors.Join(append(failures, os.RemoveAll(dir))...)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, end())
		}
	}()

	store, err := etcd.Open(ctx, etcd.Options{Dir: filepath.Join(dir, "etcd"), Ephemeral: true})
	if err != nil {
		return nil, err
	}
	ending = append(ending, store.Close)
	authority, err := auth.LoadAuthority(filepath.Join(dir, "pki"), time.Now)
	if err != nil {
		return nil, err
	}
	admin, err := authority.Admin()
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	features := apiserver.AllFeatures()
	features.OwnerChecks, features.ServiceAccounts = a != unchecked, false
	api, err := apiserver.New(ctx, apiserver.Config{
		Features: features,
		Listener: listener, Store: store, Authority: authority, Version: version.Kubernetes(), Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	ended := make(chan error, 1)
	go func() { ended <- api.Run(ctx) }()
	ending = append(ending, func() error { return <-ended })
	select {
	case <-api.Ready():
	case err := <-ended:
		ended <- err
		return nil, errors.New("our API server ended before it was ready")
	}
	s, err := newServer(&rest.Config{
		Host:            "https://" + listener.Addr().String(),
		TLSClientConfig: rest.TLSClientConfig{CAData: authority.Certificate(), CertData: admin.Certificate, KeyData: admin.Key},
	})
	if err != nil {
		return nil, err
	}
	s.stop = end
	return s, nil
}
