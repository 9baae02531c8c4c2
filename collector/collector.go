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
// The rules that it keeps are in docs/semantics.md of github.com/coppice-dev/coppice, whose root package is the
// same collector with metrics, pictures of the graph, HTTP handlers and a namespace controller.
package collector

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/collect/cluster"
	"github.com/coppice-dev/coppice/internal/collect/collector"
	"github.com/coppice-dev/coppice/internal/collect/lifecycle"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

var (
	// ErrAlreadyStarted is the error of a second Run.
	ErrAlreadyStarted = lifecycle.ErrAlreadyStarted
	// ErrNotSynced is the error of Ready while the collector has not read the state of the server.
	ErrNotSynced = lifecycle.ErrNotSynced
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
	// Workers is the number of objects that are processed concurrently. Default: 64.
	Workers int
	// Ignore lists resources whose objects are never collected, and whose deletions are not
	// observed. Nil means DefaultIgnore; an empty list ignores nothing.
	Ignore []schema.GroupResource
	// WrapMetadata, if set, is put around the client that reads metadata. A server in the same
	// process may answer lists and watches without requests. Gets, deletions and patches are always
	// requests.
	WrapMetadata func(metadata.Interface) metadata.Interface
	// Logger gets a line at level Info for each change that the collector makes to an
	// object, and at level Debug for each decision to change nothing. Default: no log.
	Logger *slog.Logger
}

// Breaker limits how many objects of one kind may be deleted before a person has to intervene. The
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

// completed returns the options with their defaults, as package cluster takes them.
func (o Options) completed() cluster.Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Ignore == nil {
		o.Ignore = DefaultIgnore()
	}
	if o.WrapMetadata == nil {
		o.WrapMetadata = func(client metadata.Interface) metadata.Interface { return client }
	}
	return cluster.Options{
		ObserveOnly: o.ObserveOnly, Breaker: collector.Breaker(o.Breaker), Records: o.Records, Workers: o.Workers,
		Ignore: o.Ignore, WrapMetadata: o.WrapMetadata, Logger: o.Logger,
	}
}

// Collector is the garbage collector of one API server. Create one with New. It is safe for concurrent use.
type Collector struct{ cluster *cluster.Cluster }

// New returns a collector for the server of config. It sends no request, and does not change or
// keep config.
//
// Requests are not rate-limited on the client side unless config sets a limit: the collector adapts
// to the capacity of the server.
func New(config *rest.Config, options Options) (*Collector, error) {
	c, err := cluster.New(config, options.completed())
	if err != nil {
		return nil, err
	}
	return &Collector{c}, nil
}

// Cluster returns the internal parts of the collector, for the root package of coppice, which is built on them.
// Its type is internal.
func (c *Collector) Cluster() *cluster.Cluster { return c.cluster }

// Run collects garbage until ctx ends, and returns when everything that it started has
// ended. It waits for a server that cannot be reached. A second call returns
// ErrAlreadyStarted.
func (c *Collector) Run(ctx context.Context) error { return c.cluster.Run(ctx) }

// Synced reports whether the collector has read all objects and has begun to collect.
func (c *Collector) Synced() bool { return c.cluster.IsSynced() }

// WaitForSync waits until Synced. It returns the error of ctx if that ends first.
func (c *Collector) WaitForSync(ctx context.Context) error { return c.cluster.WaitForSync(ctx) }

// Ready returns nil when the collector is synced, and otherwise an error that wraps ErrNotSynced
// and gives the reason.
func (c *Collector) Ready() error { return c.cluster.Ready() }

// Resume resumes the deletions of a kind that the breaker has paused. It reports whether
// they were paused.
func (c *Collector) Resume(kind schema.GroupKind) bool {
	return c.cluster.Collector.Resume(ownership.Kind{Group: kind.Group, Kind: kind.Kind})
}
