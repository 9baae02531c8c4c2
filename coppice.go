// Package coppice is garbage collection for Kubernetes-style APIs, as a library.
//
// A [Collector] watches the metadata of all objects of an API server, and does
// what their owner references ask for: it deletes dependents whose owners are
// gone, and it finishes foreground and orphan deletions. It works against any
// server that speaks the Kubernetes API: nothing has to be installed on it. It can
// also take terminating namespaces apart (Options.Namespaces), for servers where
// nobody else does.
//
// The main flow is that of [Collector.Run]: the feed observes, the collector
// decides and acts. What the rules are is written in docs/semantics.md. What it
// knows and does can be looked at: [Collector.Status], [Collector.Records],
// [Collector.WriteGraph], and all of that over HTTP by [Collector.Handler].
//
// The identity that the rest.Config stands for needs the verbs get, list, watch,
// delete and patch on all resources, and create on events. Of most objects it
// reads metadata only; a second collector on the same server is harmless, but of no use.
package coppice

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/collector"
	"github.com/coppice-dev/coppice/internal/collector/client"
	"github.com/coppice-dev/coppice/internal/feed"
	"github.com/coppice-dev/coppice/internal/metrics"
	"github.com/coppice-dev/coppice/internal/namespaces"
	"github.com/coppice-dev/coppice/internal/pace"
)

// Options of a collector. The zero value works: it collects, and nothing else.
type Options struct {
	// CollectorDisabled is for a server whose garbage somebody else collects.
	CollectorDisabled bool
	// Namespaces also takes terminating namespaces apart: it deletes what is in
	// them, and then lets them go. A cluster has a controller for that already.
	Namespaces bool
	// NamespaceWaves is the order in which they go, for Namespaces: waves of resources,
	// each begun when the one before it is empty, one of them * for all that no other
	// names: "pods;*;secrets,roles.rbac.authorization.k8s.io". Default: pods; everything
	// else; Roles, RoleBindings and NetworkPolicies.
	NamespaceWaves string
	// NamespacesConfig is how the namespace controller reaches the server, where it is to
	// be another user than the collector. Default: the config that New is given.
	NamespacesConfig *rest.Config
	// ObserveOnly decides, logs and records, but changes nothing on the server. It
	// is about the collector; there is no such way to run the namespace controller.
	ObserveOnly bool
	// Breaker pauses the deletions of a kind when there are too many, until Resume is
	// called. Default: it does not.
	Breaker Breaker
	// Records is how many decisions that changed something are remembered; negative
	// for none. Default: 10000.
	Records int
	// BarrierDisabled completes foreground and orphan deletions without the proof
	// that no dependent was missed (R15). It is for measuring what the proof costs.
	BarrierDisabled bool
	// Workers is how many objects are worked on at the same time. Default: 20.
	Workers int
	// Ignore names the resources whose objects are never collected, and whose
	// deletion is not noticed. Nil means DefaultIgnore; an empty list means that
	// nothing is ignored.
	Ignore []schema.GroupResource
	// Logger gets a line at level Info for each change that the collector makes
	// to an object, and at level Debug for what it decides not to do. Default: none.
	Logger *slog.Logger
}

// DefaultIgnore are the resources that are ignored unless Options say otherwise: the
// Events of both groups. There are many, and nothing is ever collected with them.
func DefaultIgnore() []schema.GroupResource {
	return []schema.GroupResource{{Resource: "events"}, {Group: "events.k8s.io", Resource: "events"}}
}

// Collector collects the garbage of one API server. Make one with New.
type Collector struct {
	feed      *feed.Feed // nil when the collector is disabled, as is collector
	collector *collector.Collector
	lifecycle *namespaces.Controller // nil without Options.Namespaces
	metrics   *metrics.Set
	options   Options
	started   chan struct{} // closed when everything runs
}

// New returns a collector for the server that config names. It sends no
// request; config is not changed and not kept.
//
// Unless config says otherwise, requests are not limited on this side: the
// server says when it has enough.
func New(config *rest.Config, options Options) (*Collector, error) {
	if options.CollectorDisabled && !options.Namespaces {
		return nil, errors.New("nothing to run: the collector is disabled, and Namespaces is not set")
	}
	if options.ObserveOnly && options.Namespaces {
		return nil, errors.New("the namespace controller cannot run with ObserveOnly: all that it does is change things")
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Collector{options: options, started: make(chan struct{})}
	c.metrics = metrics.New(c.reading)
	config = completed(config)
	config.Wrap(c.metrics.Transport)
	if !options.CollectorDisabled {
		if err := c.addCollector(config); err != nil {
			return nil, err
		}
	}
	if options.Namespaces {
		if options.NamespacesConfig != nil {
			config = completed(options.NamespacesConfig)
			config.Wrap(c.metrics.Transport)
		}
		if err := c.addLifecycle(config); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// completed is the config that all clients are made from.
func completed(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	if config.UserAgent == "" {
		config.UserAgent = "coppice"
	}
	if config.QPS == 0 && config.RateLimiter == nil {
		config.QPS = -1
	}
	if config.ContentType == "" {
		config.ContentType = runtime.ContentTypeProtobuf
		config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	}
	if config.WarningHandler == nil && config.WarningHandlerWithContext == nil {
		// Warnings are about deprecated versions. Which versions there are to
		// watch is not our choice.
		config.WarningHandler = rest.NoWarnings{}
	}
	return config
}

// How many requests of the collector may be under way: at first, and at most where
// the server turns out to take them. Workers alone need no more than there are of
// them; who orphans many dependents and the barrier do.
const (
	firstConcurrency = 32
	mostConcurrency  = 256
)

// addCollector makes the feed and the collector.
func (c *Collector) addCollector(config *rest.Config) error {
	discoveryClient, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("make discovery client: %w", err)
	}
	// A kind that was made just now is refused with Retry-After for a moment. The
	// watch tries again sooner than that, and less and less often.
	watching := rest.CopyConfig(config)
	watching.Wrap(client.WithoutRetry)
	metadataClient, err := metadata.NewForConfig(watching)
	if err != nil {
		return fmt.Errorf("make metadata client: %w", err)
	}
	if c.options.Ignore == nil {
		c.options.Ignore = DefaultIgnore()
	}
	c.feed = feed.New(discoveryClient, metadataClient, feed.Config{Ignore: c.options.Ignore, Logger: c.options.Logger})
	api, err := client.New(config, c.feed)
	if err != nil {
		return err
	}
	events, err := client.NewEventClient(config, c.feed, clock.RealClock{})
	if err != nil {
		return err
	}
	barrier := collector.On
	if c.options.BarrierDisabled {
		barrier = collector.Off
	}
	c.collector = collector.New(api, collector.Config{
		Workers: c.options.Workers, Barrier: barrier, ObserveOnly: c.options.ObserveOnly,
		Breaker: c.options.Breaker, Records: c.options.Records, Events: events, Logger: c.options.Logger,
		Limiter: pace.New(firstConcurrency, mostConcurrency, clock.RealClock{}.Now),
	})
	return nil
}

// addLifecycle makes the namespace controller.
func (c *Collector) addLifecycle(config *rest.Config) error {
	order, err := namespaces.ParseOrder(c.options.NamespaceWaves)
	if err != nil {
		return fmt.Errorf("NamespaceWaves: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	contents, err := metadata.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make metadata client: %w", err)
	}
	c.lifecycle, err = namespaces.New(namespaces.Config{Client: client, Metadata: contents, Order: order, Logger: c.options.Logger})
	return err
}

// Run collects until ctx ends, and returns when all that it started has ended.
// A server that cannot be reached is waited for. It may be called once.
func (c *Collector) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	defer parts.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	failed := make(chan error, 1)
	if c.lifecycle != nil {
		parts.Go(func() {
			if err := c.lifecycle.Run(ctx); err != nil {
				failed <- err
				cancel()
			}
		})
	}
	if c.collector != nil {
		parts.Go(func() { c.feed.Run(ctx, c.sink()) })
		// The graph first: while it is half built, most owners seem to be missing,
		// and each would be asked for.
		if err := c.feed.WaitForInitialSync(ctx); err == nil {
			c.options.Logger.InfoContext(ctx, "collecting", c.extent()...)
			parts.Go(func() { c.collector.Run(ctx) })
		}
	}
	if c.lifecycle != nil {
		_ = c.lifecycle.WaitForSync(ctx) // or until ctx has ended, which is no failure
	}
	if ctx.Err() == nil {
		close(c.started)
	}
	<-ctx.Done()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// extent is what a start has to say: how much there is, and what could not be read.
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

// Synced tells whether the collector has read what there is, the namespaces too if it
// takes them apart, and has begun to collect.
func (c *Collector) Synced() bool {
	select {
	case <-c.started:
		return true
	default:
		return false
	}
}

// WaitForSync waits until Synced. It returns the error of ctx when that ends first.
func (c *Collector) WaitForSync(ctx context.Context) error {
	select {
	case <-c.started:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
