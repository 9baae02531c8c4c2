package coppice

import (
	"context"

	"github.com/coppice-dev/coppice/internal/collect/process"
	"github.com/coppice-dev/coppice/internal/tools/metrics"
)

// Controllers are a collector and a namespace controller that run in one process. Either may be
// nil. They are faster together than in two processes: the collector, which watches all objects,
// notifies the namespace controller at once of objects that are gone from a terminating namespace.
type Controllers struct {
	Collector  *Collector
	Namespaces *NamespaceController
	// Others, if set, returns the unfinished work of other controllers in this process on
	// terminating objects; Settle waits for them too.
	Others func(deleted []HeldObject) (unfinished []string)
}

// inside returns the controllers as the packages of this module know them.
func (c Controllers) inside() metrics.Controllers {
	inside := metrics.Controllers{Controllers: process.Controllers{Others: c.Others}}
	if c.Collector != nil {
		inside.Collector, inside.Metrics = c.Collector.Collector, append(inside.Metrics, c.Collector.metrics)
	}
	if c.Namespaces != nil {
		inside.Namespaces, inside.Metrics = c.Namespaces.controller, append(inside.Metrics, c.Namespaces.metrics)
	}
	return inside
}

// Run runs the controllers until ctx ends or one of them fails, and returns when both have
// ended.
func (c Controllers) Run(ctx context.Context) error { return c.inside().Run(ctx) }

// Synced reports whether all of the controllers are synced.
func (c Controllers) Synced() bool { return c.inside().Synced() }

// WaitForSync waits until Synced. It returns the error of ctx if that ends first.
func (c Controllers) WaitForSync(ctx context.Context) error { return c.inside().WaitForSync(ctx) }

// Ready returns nil when all of the controllers are synced, and otherwise an error that wraps
// ErrNotSynced and gives the reason.
func (c Controllers) Ready() error { return c.inside().Ready() }

// Settle waits until collection has come to rest, or ctx ends: the controllers have observed the
// state of the server, no namespace is left to empty, and no object waits in the queue, in back-off
// or at the barrier. It is for test suites: it lists all objects of the server and compares them
// with the graph.
func (c Controllers) Settle(ctx context.Context) Settlement { return c.inside().Settle(ctx) }
