package conformance

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice"
	"github.com/coppice-dev/coppice/internal/cli/conformance/probe"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
	"github.com/coppice-dev/coppice/internal/testing/transcript"
)

// collector is our collector, running in this process.
type collector struct {
	cancel context.CancelFunc
	ended  chan error
	synced func() bool
	log    *transcript.Transcript
}

// controllers makes the controllers of a test.
type controllers func(config *rest.Config, log *slog.Logger) (runner, error)

// runner is implemented by the controllers of package coppice.
type runner interface {
	Run(ctx context.Context) error
	Synced() bool
}

func collecting(config *rest.Config, log *slog.Logger) (runner, error) {
	return coppice.New(config, coppice.Options{Logger: log})
}

// emptying makes no collector, only the namespace controller.
func emptying(config *rest.Config, log *slog.Logger) (runner, error) {
	return coppice.NewNamespaceController(config, coppice.NamespaceOptions{Logger: log})
}

func collectingAndEmptying(config *rest.Config, log *slog.Logger) (runner, error) {
	collector, err := coppice.New(config, coppice.Options{Logger: log})
	if err != nil {
		return nil, err
	}
	namespaces, err := coppice.NewNamespaceController(config, coppice.NamespaceOptions{Logger: log})
	return coppice.Controllers{Collector: collector, Namespaces: namespaces}, err
}

// startCollector starts controllers. They are ready when synced returns true.
func startCollector(config *rest.Config, newControllers controllers) (*collector, error) {
	config = rest.CopyConfig(config)
	config.UserAgent = "" // the collector's own
	config.QPS = 0
	log := &transcript.Transcript{Limit: 16 << 10}
	running, err := newControllers(config, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &collector{cancel: cancel, ended: make(chan error, 1), synced: running.Synced, log: log}
	go func() { c.ended <- running.Run(ctx) }()
	return c, nil
}

// stop ends the collector and waits for it.
func (c *collector) stop() {
	c.cancel()
	<-c.ended
}

// cluster is a namespace of a test on a server whose collector the test can start.
type cluster struct {
	*probe.Space
	server *server
	t      testing.TB
}

// collect runs a collector behind tap until the test ends or the function that it
// returns is called.
func (w *cluster) collect(tap *tap) (stop func()) {
	w.t.Helper()
	return w.collectWith(tap, collecting)
}

func (w *cluster) collectWith(tap *tap, newControllers controllers) (stop func()) {
	w.t.Helper()
	stop = w.collectSoon(tap, newControllers)
	waitFor(w.t, w.server.collector)
	return stop
}

// collectSoon is like collect, for a collector that has to wait for something first.
func (w *cluster) collectSoon(tap *tap, newControllers controllers) (stop func()) {
	w.t.Helper()
	config := rest.CopyConfig(w.server.Config)
	if tap != nil {
		config.Wrap(tap.wrap)
	}
	c, err := startCollector(config, newControllers)
	if err != nil {
		w.t.Fatal(err)
	}
	w.server.collector = c
	stop = sync.OnceFunc(func() {
		c.stop()
		w.server.collector = nil
	})
	w.t.Cleanup(func() {
		stop()
		if w.t.Failed() {
			w.t.Logf("the collector's last lines:\n%s", c.log)
		}
	})
	return stop
}

// quiet returns a new namespace on a server where nothing collects until the test starts it. Such
// tests do not run in parallel.
func quiet(t testing.TB) *cluster {
	t.Helper()
	return quietWith(t, checked)
}

// quietWith is like quiet, on a server with the given admission of owner references.
func quietWith(t testing.TB, a admission) *cluster {
	t.Helper()
	s, err := quietServer(a)
	switch {
	case err != nil:
		t.Fatal(err)
	case s == nil:
		t.Skip("the server's own collector cannot be stopped or disturbed")
	}
	record(t)
	return &cluster{Space: probe.NewSpace(t, s.Server), server: s, t: t}
}

// apart is like quietWith, on a server of its own, and lets the test run beside others, four at a time. On a server that
// is not ours, these tests come one after the other.
func apart(t *testing.T, a admission) *cluster {
	t.Helper()
	if os.Getenv(kubeconfigVariable) != "" {
		return quietWith(t, a)
	}
	t.Parallel()
	turns <- struct{}{}
	t.Cleanup(func() { <-turns })
	s, err := startBare(a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	})
	record(t)
	return &cluster{Space: probe.NewSpace(t, s.Server), server: s, t: t}
}

// turns has one of its places for each test that runs apart.
var turns = make(chan struct{}, 4)

// shared returns the server that all checks share, with the given admission of owner references,
// where a collector runs.
func shared(t testing.TB, a admission) *server {
	t.Helper()
	s, err := sharedServer(a)
	if err != nil {
		t.Fatal(err)
	}
	if s.collector != nil {
		waitFor(t, s.collector)
	}
	return s
}

// waitFor waits until a collector collects.
func waitFor(t testing.TB, c *collector) {
	t.Helper()
	eventually.Agrees(t, func() string {
		select {
		case err := <-c.ended:
			c.ended <- err
			t.Fatal(errors.Join(errors.New("the collector has ended"), err))
		default:
		}
		if !c.synced() {
			return "the collector does not come up"
		}
		return ""
	})
}
