// Package cluster assembles the garbage collection of one API server: the clients, the feed that observes its
// objects, and the collector that decides about them. Two libraries use it: package collector, and the root,
// which adds metrics, pictures and handlers.
package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/collect/collector"
	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/collect/feed"
	"github.com/coppice-dev/coppice/internal/collect/lifecycle"
	"github.com/coppice-dev/coppice/internal/collect/pace"
	"github.com/coppice-dev/coppice/internal/collect/story"
)

// Options are the options of package collector, with their defaults.
type Options struct {
	ObserveOnly  bool
	Breaker      collector.Breaker
	Records      int
	Workers      int
	Ignore       []schema.GroupResource
	WrapMetadata func(metadata.Interface) metadata.Interface
	Logger       *slog.Logger
	// Restartable lets the parts run again, for clusters that sleep. They keep no stories.
	Restartable bool
}

// Cluster is one API server whose garbage is collected. Make one with New.
type Cluster struct {
	lifecycle.Lifecycle

	Feed      *feed.Feed
	Collector *collector.Collector
	Stories   *story.Book
	// Sink receives the feed's observations for the Collector. It may be wrapped before Run.
	Sink feed.Sink

	log      *slog.Logger
	clock    clock.WithTicker
	reach    *pace.Reach
	sleeping sleeping
}

// The limits on the collector's requests in flight: at first, and at most if the server can handle them. The
// workers need only one each; orphaning many dependents and the barrier need more.
const (
	firstConcurrency = 32
	mostConcurrency  = 256
)

// New returns the Cluster for the server of config. It sends no request, and neither changes nor keeps config.
func New(config *rest.Config, options Options) (*Cluster, error) {
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
	metadataClient, err := metadata.NewForConfig(watching)
	if err != nil {
		return nil, fmt.Errorf("make metadata client: %w", err)
	}
	c := &Cluster{Lifecycle: lifecycle.New(), log: options.Logger, clock: clock.RealClock{}, reach: reach}
	c.sleeping.wake = make(chan struct{}, 1)
	if !options.Restartable {
		c.Stories = story.NewBook()
	}
	c.Feed = feed.New(discoveryOf(discoveryClient), options.WrapMetadata(metadataClient), feed.Config{Ignore: options.Ignore, Logger: options.Logger})
	api, err := client.New(config, c.Feed)
	if err != nil {
		return nil, err
	}
	api.WrapLists(options.WrapMetadata)
	events, err := client.NewEventClient(config, c.Feed, clock.RealClock{})
	if err != nil {
		return nil, err
	}
	c.Collector = collector.New(api, collector.Config{
		Workers: options.Workers, ObserveOnly: options.ObserveOnly,
		Breaker: options.Breaker, Records: options.Records, Events: events, Logger: options.Logger,
		Stories: c.Stories, Restartable: options.Restartable, Await: reach.Wait, Limiter: pace.New(firstConcurrency, mostConcurrency, clock.RealClock{}.Now),
	})
	c.Sink = c.Collector.Sink()
	return c, nil
}

// Run collects until ctx ends, and returns when all its goroutines have ended. A second call returns
// lifecycle.ErrAlreadyStarted.
func (c *Cluster) Run(ctx context.Context) error {
	if err := c.Start(); err != nil {
		return fmt.Errorf("garbage collector: %w", err)
	}
	var parts sync.WaitGroup
	defer parts.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	parts.Go(func() { c.Feed.Run(ctx, c.Sink) })
	// The graph comes first: while it is incomplete most owners seem to be missing, and each of
	// them would be read.
	if c.Feed.WaitForInitialSync(ctx) != nil {
		return nil // ctx has ended, as it should
	}
	c.log.InfoContext(ctx, "collecting", c.extent()...)
	parts.Go(func() { c.Collector.Run(ctx) })
	c.SetSynced()
	<-ctx.Done()
	return nil
}

// extent returns log attributes for the start: the number of kinds, and how many could not be read.
func (c *Cluster) extent() []any {
	kinds, failing := 0, 0
	for _, m := range c.Feed.Status() {
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

// Ready returns nil if the collector is synced and can reach the server. Otherwise the error gives the time
// since which the server cannot be reached, or wraps lifecycle.ErrNotSynced and names the missing part.
func (c *Cluster) Ready() error {
	since, isAway := c.reach.Since()
	switch {
	case c.IsSynced() && isAway:
		return fmt.Errorf("the server cannot be reached since %s", since.UTC().Format(time.RFC3339))
	case c.IsSynced():
		return nil
	case isAway:
		return fmt.Errorf("%w: the server cannot be reached since %s", lifecycle.ErrNotSynced, since.UTC().Format(time.RFC3339))
	}
	monitors := c.Feed.Status()
	if len(monitors) == 0 {
		return fmt.Errorf("%w: the resources of the server are not known yet", lifecycle.ErrNotSynced)
	}
	waiting := 0
	for _, m := range monitors {
		if m.State == feed.Waiting {
			waiting++
		}
	}
	return fmt.Errorf("%w: %d of %d resources are not read yet", lifecycle.ErrNotSynced, waiting, len(monitors))
}
