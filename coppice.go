// Package coppice is garbage collection for Kubernetes-style APIs, as a library.
//
// There are two controllers, for any server that speaks the Kubernetes API. Nothing has
// to be installed on it.
//
//   - [Collector] is the garbage collector: it watches the metadata of all objects and does
//     what their owner references ask for. It deletes dependents whose owners are gone, and
//     completes foreground and orphan deletions.
//   - [NamespaceController] deletes the contents of terminating namespaces and then finalizes
//     them, for servers where nothing else does.
//
// Each is made from a rest.Config and runs until its context ends. [Controllers] runs both
// in one process. The rules that they keep are in docs/semantics.md.
//
// The state of a collector can be read at any time: [Collector.Status] and
// [Collector.Records], the ownership graph with [Collector.WriteGraph], Prometheus metrics
// with [Collector.Metrics], and all of that over HTTP with [Collector.Handler].
//
// The identity of a collector's rest.Config needs the verbs get, list, watch, delete and
// patch on all resources, and create on events. Of most objects it reads metadata only. A
// second collector on the same server is harmless but useless.
package coppice

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/collector"
	"github.com/coppice-dev/coppice/internal/collector/client"
	"github.com/coppice-dev/coppice/internal/feed"
	"github.com/coppice-dev/coppice/internal/insight"
	"github.com/coppice-dev/coppice/internal/metrics"
	"github.com/coppice-dev/coppice/internal/ownership"
	"github.com/coppice-dev/coppice/internal/pace"
	"github.com/coppice-dev/coppice/internal/story"
)

var (
	// ErrAlreadyStarted is the error of a second Run of the same controller.
	ErrAlreadyStarted = errors.New("started more than once")
	// ErrNotSynced is the error of Ready while a controller has not read the state of the server.
	ErrNotSynced = errors.New("not synced")
	// ErrGraphTooLarge is the error of WriteGraph for a graph that is too large to draw.
	ErrGraphTooLarge = insight.ErrTooLarge
)

// Options are the options of a collector. The zero value is usable.
type Options struct {
	// ObserveOnly makes the collector decide, log and record, but change nothing on the server.
	ObserveOnly bool
	// Breaker pauses the deletions of a kind when there are too many, until Resume is called.
	// Default: deletions are never paused.
	Breaker Breaker
	// Records is the number of changes that are kept for Collector.Records; negative for none.
	// Default: 10000.
	Records int
	// Workers is the number of objects that are worked on concurrently. Default: 64.
	Workers int
	// Ignore lists resources whose objects are never collected, and whose deletions are not
	// noticed. Nil means DefaultIgnore; an empty list ignores nothing.
	Ignore []schema.GroupResource
	// WrapMetadata, if set, is put around the client that reads metadata. A server in the same
	// process may answer lists and watches without requests. Gets, deletions and patches are always
	// requests.
	WrapMetadata func(metadata.Interface) metadata.Interface
	// Logger gets a line at level Info for each change that the collector makes to an
	// object, and at level Debug for each decision to change nothing. Default: no log.
	Logger *slog.Logger
}

// Breaker limits how many objects of one kind may be deleted before somebody has to look at it. The
// zero value sets no limit.
type Breaker struct {
	// Share is the share of a kind's objects that may be deleted within Window: 0.1 is a tenth. 0
	// turns the breaker off.
	Share float64
	// Window is the time over which deletions are counted. Default: one minute.
	Window time.Duration
	// Min is the number of deletions of a kind within Window that are always allowed. Default: 100.
	Min int
}

// DefaultIgnore returns the resources that are ignored unless Options.Ignore is set: the Events of
// both groups. There are many of them, and they own nothing.
func DefaultIgnore() []schema.GroupResource {
	return []schema.GroupResource{{Resource: "events"}, {Group: "events.k8s.io", Resource: "events"}}
}

// Collector is the garbage collector of one API server. Create one with New.
type Collector struct {
	lifecycle
	feed      *feed.Feed
	collector *collector.Collector
	metrics   *metrics.Set
	stories   *story.Book
	log       *slog.Logger
	gone      listeners
}

// The number of requests of the collector that may be in flight: at first, and at most if the
// server turns out to handle them. The workers need only one each; orphaning many dependents and
// the barrier need more.
const (
	firstConcurrency = 32
	mostConcurrency  = 256
)

// New returns a collector for the server of config. It sends no request, and neither changes nor
// keeps config.
//
// Unless config limits them, requests are not rate-limited on the client side: the collector adapts
// to what the server can handle.
func New(config *rest.Config, options Options) (*Collector, error) {
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	if options.Ignore == nil {
		options.Ignore = DefaultIgnore()
	}
	c := &Collector{log: options.Logger, lifecycle: newLifecycle()}
	c.metrics = metrics.New(c.reading)
	config = completed(config)
	config.Wrap(c.metrics.Transport)
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
	if options.WrapMetadata == nil {
		options.WrapMetadata = func(client metadata.Interface) metadata.Interface { return client }
	}
	c.stories = story.NewBook()
	c.feed = feed.New(discoveryClient, options.WrapMetadata(metadataClient), feed.Config{Ignore: options.Ignore, Logger: options.Logger})
	api, err := client.New(config, c.feed)
	if err != nil {
		return nil, err
	}
	api.WrapLists(options.WrapMetadata)
	events, err := client.NewEventClient(config, c.feed, clock.RealClock{})
	if err != nil {
		return nil, err
	}
	c.collector = collector.New(api, collector.Config{
		Workers: options.Workers, ObserveOnly: options.ObserveOnly,
		Breaker: collector.Breaker(options.Breaker), Records: options.Records, Events: events, Logger: options.Logger,
		Stories: c.stories, Limiter: pace.New(firstConcurrency, mostConcurrency, clock.RealClock{}.Now),
	})
	return c, nil
}

// DeletionRequest is a DELETE of an object by somebody.
type DeletionRequest struct {
	// Request is the same for all objects of one request, as one for a collection.
	Request string
	UID     UID
	// User asks, with the program Agent.
	User, Agent string
	// Policy is the propagation policy; empty if none was asked for.
	Policy metav1.DeletionPropagation
}

// Requested tells the collector who asks for a deletion, which no watch tells. API servers that run it in
// their process may call it, before the object changes; the stories of deletions that the API tells then say
// so. It changes nothing about what is collected, and may be called concurrently, and before Run.
func (c *Collector) Requested(r DeletionRequest) {
	c.stories.Requested(story.Request{
		Key: r.Request, UID: ownership.UID(r.UID), By: story.By{User: r.User, Agent: r.Agent}, Policy: string(r.Policy),
	})
}

// Run collects garbage until ctx ends, and returns when everything that it started has
// ended. It waits for a server that cannot be reached. A second call returns
// ErrAlreadyStarted.
func (c *Collector) Run(ctx context.Context) error {
	if err := c.start(); err != nil {
		return fmt.Errorf("garbage collector: %w", err)
	}
	var parts sync.WaitGroup
	defer parts.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	parts.Go(func() { c.feed.Run(ctx, c.sink()) })
	// The graph comes first: while it is incomplete most owners seem to be missing, and each of
	// them would be read.
	if c.feed.WaitForInitialSync(ctx) != nil {
		return nil // ctx has ended, as it should
	}
	c.log.InfoContext(ctx, "collecting", c.extent()...)
	parts.Go(func() { c.collector.Run(ctx) })
	c.setSynced()
	<-ctx.Done()
	return nil
}

// extent returns log attributes for the start: the number of kinds, and of those that could not be
// read.
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

// Synced reports whether the collector has read all objects and has begun to collect.
func (c *Collector) Synced() bool { return c.isSynced() }

// WaitForSync waits until Synced. It returns the error of ctx if that ends first.
func (c *Collector) WaitForSync(ctx context.Context) error { return c.waitForSync(ctx) }

// Ready returns nil when the collector is synced, and otherwise an error that wraps ErrNotSynced
// and says what is missing.
func (c *Collector) Ready() error {
	if c.Synced() {
		return nil
	}
	monitors := c.feed.Status()
	if len(monitors) == 0 {
		return fmt.Errorf("%w: the resources of the server are not known yet", ErrNotSynced)
	}
	waiting := 0
	for _, m := range monitors {
		if m.State == feed.Waiting {
			waiting++
		}
	}
	return fmt.Errorf("%w: %d of %d resources are not read yet", ErrNotSynced, waiting, len(monitors))
}

// Resume resumes the deletions of a kind that the breaker has paused. It reports whether
// they were paused.
func (c *Collector) Resume(kind schema.GroupKind) bool {
	return c.collector.Resume(ownership.Kind{Group: kind.Group, Kind: kind.Kind})
}

// Backlog returns the number of objects in a namespace that are queued.
func (c *Collector) Backlog(namespace string) int { return c.collector.Backlog(namespace) }
