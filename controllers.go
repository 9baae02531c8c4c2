package coppice

import (
	"cmp"
	"context"
	"errors"

	"golang.org/x/sync/errgroup"
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

// Run runs the controllers until ctx ends or one of them fails, and returns when both have
// ended.
func (c Controllers) Run(ctx context.Context) error {
	if c.Collector == nil && c.Namespaces == nil {
		return errors.New("there is no controller to run")
	}
	if c.Collector != nil && c.Namespaces != nil {
		defer c.Collector.gone.add(c.Namespaces.controller.Changed)()
	}
	group, ctx := errgroup.WithContext(ctx)
	if c.Namespaces != nil {
		group.Go(func() error { return c.Namespaces.Run(ctx) })
	}
	if c.Collector != nil {
		group.Go(func() error { return c.Collector.Run(ctx) })
	}
	return group.Wait()
}

// Synced reports whether all of the controllers are synced.
func (c Controllers) Synced() bool {
	return (c.Collector == nil || c.Collector.Synced()) && (c.Namespaces == nil || c.Namespaces.Synced())
}

// WaitForSync waits until Synced. It returns the error of ctx if that ends first.
func (c Controllers) WaitForSync(ctx context.Context) error {
	var collector, namespaces error
	if c.Collector != nil {
		collector = c.Collector.WaitForSync(ctx)
	}
	if c.Namespaces != nil {
		namespaces = c.Namespaces.WaitForSync(ctx)
	}
	return cmp.Or(collector, namespaces)
}

// Ready returns nil when all of the controllers are synced, and otherwise an error that wraps
// ErrNotSynced and gives the reason.
func (c Controllers) Ready() error {
	var collector, namespaces error
	if c.Collector != nil {
		collector = c.Collector.Ready()
	}
	if c.Namespaces != nil {
		namespaces = c.Namespaces.Ready()
	}
	return cmp.Or(collector, namespaces)
}
