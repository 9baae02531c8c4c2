// Package collector is garbage collection for Kubernetes-style APIs, as a library that needs no more dependencies
// than client-go. It is also the root of the module github.com/coppice-dev/collector, so that a project that
// requires client-go already gets one more line in its go.mod.
//
// A [Collector] collects the garbage of one API server, any that speaks the Kubernetes API: it watches the
// metadata of all objects and does what their owner references ask for. It deletes dependents whose owners are
// gone, and completes foreground and orphan deletions. It is made from a rest.Config with [New], and runs until
// its context ends.
//
// The identity of that rest.Config needs the verbs get, list, watch, delete and patch on all resources, and create
// on events. Of most objects it reads metadata only. A second collector on the same server is harmless but
// useless.
//
// [Collector.Status] and [Collector.Records] return the types of package report.
//
// The rules that it keeps are in docs/semantics.md of github.com/coppice-dev/coppice, whose root package is the
// same collector with metrics, pictures of the graph, HTTP handlers and a namespace controller.
package collector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/collector/report"
	engine "github.com/coppice-dev/coppice/internal/collect/collector"
	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/collect/feed"
	"github.com/coppice-dev/coppice/internal/collect/lifecycle"
	"github.com/coppice-dev/coppice/internal/collect/pace"
	"github.com/coppice-dev/coppice/internal/collect/storybook"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

var (
	// ErrAlreadyStarted is the error of a second Run.
	ErrAlreadyStarted = lifecycle.ErrAlreadyStarted
	// ErrNotSynced is the error of Ready while the collector has not read the state of the server.
	ErrNotSynced = lifecycle.ErrNotSynced
)

// Collector is the garbage collector of one API server. Create one with New. It is safe for concurrent use.
//
// It assembles the clients of the server, the feed that observes the server's objects, and the engine that decides
// about them.
type Collector struct {
	lifecycle lifecycle.Lifecycle
	feed      *feed.Feed
	engine    *engine.Collector
	stories   *storybook.Book // nil in a Pool
	sink      feed.Sink       // receives the feed's observations for the engine

	log      *slog.Logger
	clock    clock.WithTicker
	reach    *pace.Reach
	leading  atomic.Bool // Lead is under way
	idle     atomic.Bool // Lead has returned
	sleeping sleeping
}

// New returns a collector for the server of config. It sends no request, and does not change or
// keep config.
//
// Requests are not rate-limited on the client side unless config sets a limit: the collector adapts
// to the capacity of the server.
func New(config *rest.Config, options Options) (*Collector, error) {
	return newCollector(config, options.completed(), runsOnce)
}

// runs is how often the parts of a collector run.
type runs uint8

const (
	runsOnce runs = iota
	// restartable parts run again after a sleep. They record no deletions for the API over HTTP.
	restartable
)

// The limits on the collector's requests in flight: at first, and at most if the server can handle them. The
// workers need only one each; orphaning many dependents and the barrier need more.
const (
	firstConcurrency = 32
	mostConcurrency  = 256
)

// newCollector assembles a collector from options with their defaults.
func newCollector(config *rest.Config, options Options, runs runs) (*Collector, error) {
	config = lifecycle.Completed(config)
	reach := pace.NewReach(options.Logger, clock.RealClock{})
	config.Wrap(reach.Wrap)
	discoveryClient, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make discovery client: %w", err)
	}
	// For a moment after its creation, a kind answers requests with Retry-After. The monitors retry
	// sooner than that, with back-off.
	watching := rest.CopyConfig(config)
	watching.Wrap(client.WithoutRetry)
	metadataClient, err := feed.NewClient(watching)
	if err != nil {
		return nil, err
	}
	c := &Collector{lifecycle: lifecycle.New(), log: options.Logger, clock: clock.RealClock{}, reach: reach}
	c.sleeping.wake = make(chan struct{}, 1)
	if runs == runsOnce {
		c.stories = storybook.New()
	}
	c.feed = feed.New(discoveryOf(discoveryClient), options.WrapMetadata(metadataClient), feed.Config{Ignore: options.Ignore, Logger: options.Logger})
	api, err := client.New(config, c.feed)
	if err != nil {
		return nil, err
	}
	api.WrapLists(options.WrapMetadata)
	events, err := client.NewEventClient(config, c.feed, clock.RealClock{})
	if err != nil {
		return nil, err
	}
	c.engine = engine.New(api, engine.Config{
		Workers: options.Workers, ObserveOnly: options.ObserveOnly,
		Breaker: engine.Breaker(options.Breaker), Records: options.Records, Events: events, Logger: options.Logger,
		Stories: c.stories, Restartable: runs == restartable, Await: c.await,
		Limiter: pace.New(firstConcurrency, mostConcurrency, clock.RealClock{}.Now),
	})
	c.sink = c.engine.Sink()
	return c, nil
}

// await waits while the server is away, and after an outage until the feed has verified its history.
func (c *Collector) await(ctx context.Context) error { return c.reach.Await(ctx, c.feed.VerifyHistory) }

// Run collects garbage until ctx ends, and returns when everything that it started has
// ended. It waits for a server that cannot be reached. A second call returns
// ErrAlreadyStarted. It is Observe and Lead at the same time.
func (c *Collector) Run(ctx context.Context) error {
	var leading sync.WaitGroup
	defer leading.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := c.lifecycle.Start(); err != nil {
		return fmt.Errorf("garbage collector: %w", err)
	}
	leading.Go(func() { _ = c.Lead(ctx) })
	c.feed.Run(ctx, c.sink)
	return nil
}

// Observe keeps the collector's knowledge of the server up to date until ctx ends, and changes nothing. It is for a
// replica that stands by, and for the leader of several replicas beside Lead. It returns when everything that it started
// has ended. A second call, or one after Run, returns ErrAlreadyStarted.
func (c *Collector) Observe(ctx context.Context) error {
	if err := c.lifecycle.Start(); err != nil {
		return fmt.Errorf("garbage collector: %w", err)
	}
	c.feed.Run(ctx, c.sink)
	return nil
}

// Lead collects garbage until ctx ends, from what Observe has observed, which goes on meanwhile. It first waits for
// Observed. It returns when all its requests have ended, so that another replica can lead then. It may be called again
// after it has returned, any number of times, but not by two goroutines at once.
func (c *Collector) Lead(ctx context.Context) error {
	if c.leading.Swap(true) {
		return fmt.Errorf("garbage collector: it leads already: %w", ErrAlreadyStarted)
	}
	defer c.leading.Store(false)
	// The graph comes first: while it is incomplete most owners seem to be missing, and each of
	// them would be read.
	if c.feed.WaitForInitialSync(ctx) != nil {
		return nil // ctx has ended, as it should
	}
	c.log.InfoContext(ctx, "collecting", c.extent()...)
	defer c.idle.Store(true)
	c.idle.Store(false)
	if !c.lifecycle.IsSynced() {
		c.lifecycle.SetSynced()
	}
	c.engine.Run(ctx)
	return nil
}

// Observed reports whether Observe has read all objects that it can read: from then on Lead begins at once.
func (c *Collector) Observed() bool { return c.feed.Synced() }

// WaitForObserved waits until Observed. It returns the error of ctx if that ends first.
func (c *Collector) WaitForObserved(ctx context.Context) error { return c.feed.WaitForInitialSync(ctx) }

// extent returns log attributes for the start: the number of kinds, and how many could not be read.
func (c *Collector) extent() []any {
	kinds, failing := 0, 0
	for _, m := range c.feed.Status() {
		if kinds++; m.State != feed.Synced {
			failing++
		}
	}
	extent := []any{"kinds", kinds}
	if failing > 0 {
		extent = append(extent, "unread", failing)
	}
	return extent
}

// Synced reports whether the collector has read all objects and collects. It is false between two calls of Lead.
func (c *Collector) Synced() bool { return c.lifecycle.IsSynced() && !c.idle.Load() }

// WaitForSync waits until the collector is synced for the first time. It returns the error of ctx if that ends first.
func (c *Collector) WaitForSync(ctx context.Context) error { return c.lifecycle.WaitForSync(ctx) }

// Ready returns nil if the collector is synced and can reach the server. Otherwise the error gives the time since
// which the server cannot be reached, or wraps ErrNotSynced and names the missing part.
func (c *Collector) Ready() error {
	since, isAway := c.reach.Since()
	switch {
	case c.Synced() && isAway:
		return fmt.Errorf("the server cannot be reached since %s", since.UTC().Format(time.RFC3339))
	case c.Synced():
		if err := c.reach.Unverified(); err != nil {
			return fmt.Errorf("the history of the server cannot be verified after an outage: %w", err)
		}
		return nil
	case isAway:
		return fmt.Errorf("%w: the server cannot be reached since %s", ErrNotSynced, since.UTC().Format(time.RFC3339))
	case c.Observed() && c.lifecycle.IsSynced():
		return fmt.Errorf("%w: it stands by", ErrNotSynced)
	}
	return fmt.Errorf("%w: %s", ErrNotSynced, c.unread())
}

// Warm is Ready for a replica that stands by: it returns nil if each resource was read, or cannot be read, and the server
// can be reached.
func (c *Collector) Warm() error {
	since, isAway := c.reach.Since()
	unread := c.unread()
	switch {
	case isAway:
		return fmt.Errorf("the server cannot be reached since %s", since.UTC().Format(time.RFC3339))
	case c.Observed() && unread.waiting == 0:
		return nil
	}
	return fmt.Errorf("%w: %s", ErrNotSynced, unread)
}

// extentUnread is how many of the watched resources were neither read nor refused yet.
type extentUnread struct{ waiting, watched int }

func (u extentUnread) String() string {
	if u.watched == 0 {
		return "the resources of the server are not known yet"
	}
	return fmt.Sprintf("%d of %d resources are not read yet", u.waiting, u.watched)
}

func (c *Collector) unread() (u extentUnread) {
	monitors := c.feed.Status()
	u.watched = len(monitors)
	for i := range monitors {
		if monitors[i].State == feed.Waiting {
			u.waiting++
		}
	}
	return u
}

// Status returns the state of the collector.
func (c *Collector) Status() report.Status {
	s := c.engine.Status()
	s.Synced = c.Synced()
	since, err := c.asleepSince()
	s.AsleepSince = since
	if err != nil {
		s.ProbeError = err.Error()
	}
	monitors := c.feed.Status()
	s.Resources = make([]report.ResourceStatus, 0, len(monitors))
	for i := range monitors {
		s.Resources = append(s.Resources, resourceStatusOf(&monitors[i]))
	}
	return s
}

func resourceStatusOf(m *feed.MonitorStatus) report.ResourceStatus {
	r := report.ResourceStatus{
		Kind: m.Kind.String(), Resource: m.Resource.GroupResource().String(), Version: m.Resource.Version,
		State: m.State.String(), Since: m.Since,
		Complete: m.Complete, Leaving: m.Leaving, Revision: m.Revision,
	}
	if m.Err != nil {
		r.Error = m.Err.Error()
	}
	return r
}

// Records returns the last decisions that changed something on the server, oldest first. With
// Options.ObserveOnly they are decisions that would have changed something.
func (c *Collector) Records() []report.Record { return c.engine.Records() }

// Resume resumes the deletions of a kind that the breaker has paused. It reports whether
// they were paused.
func (c *Collector) Resume(kind schema.GroupKind) bool {
	return c.engine.Resume(ownership.Kind{Group: kind.Group, Kind: kind.Kind})
}

// Backlog returns the number of objects in a namespace that are queued.
func (c *Collector) Backlog(namespace string) int { return c.engine.Backlog(namespace) }

// Carries reports whether any object that the collector has observed has a finalizer. It is an error if
// none has and the collector has not observed everything.
func (c *Collector) Carries(finalizer string) (carried bool, err error) {
	c.engine.View(func(g *ownership.Graph) { carried = g.Carries(finalizer) })
	if carried {
		return true, nil
	}
	if !c.Observed() {
		return false, errors.New("the collector has not read everything yet")
	}
	if unread := c.feed.Unread(); len(unread) > 0 {
		return false, fmt.Errorf("the collector could not read all, for example %s", unread[0])
	}
	return false, nil
}

// Parts are the parts of a Collector. Their types are internal: they are for diagnostics in the module of coppice.
type Parts struct {
	Feed    *feed.Feed
	Engine  *engine.Collector
	Stories *storybook.Book // nil in a Pool
}

// Parts returns the parts of the collector.
func (c *Collector) Parts() Parts { return Parts{c.feed, c.engine, c.stories} }
