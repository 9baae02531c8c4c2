package collector

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/collect/feed"
	"github.com/coppice-dev/coppice/internal/rules/apiservice"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
)

// Stats returns the counts up to now.
func (c *Collector) Stats() report.Stats {
	s := c.stats
	return report.Stats{
		Gets: s.gets.Load(), Lists: s.lists.Load(), Deletes: s.deletes.Load(), Patches: s.patches.Load(),
		Events: s.events.Load(), Conflicts: s.conflicts.Load(), Hot: s.hot.Load(),
		Paused: s.paused.Load(), Tripped: s.tripped.Load(), Epochs: s.epochs.Load(),
		Rounds: c.barrier.Rounds(), Holds: c.barrier.Holds(),
		Keep: s.keep.Load(), Verify: s.verify.Load(), Park: s.park.Load(),
		Detach: s.detach.Load(), Unblock: s.unblock.Load(), Delete: s.delete.Load(),
		Await: s.await.Load(), Disown: s.disown.Load(), RemoveFinalizer: s.removeFinalizer.Load(),
	}
}

type counters struct {
	gets, lists, deletes, patches, events                                       atomic.Int64
	conflicts, hot, paused, tripped, epochs                                     atomic.Int64
	keep, verify, park, detach, unblock, delete, await, disown, removeFinalizer atomic.Int64
}

func (s *counters) decided(decision verdict.Decision) {
	switch decision.(type) {
	case verdict.Keep:
		s.keep.Add(1)
	case verdict.Verify, verdict.Reread:
		s.verify.Add(1)
	case verdict.Park:
		s.park.Add(1)
	case verdict.Detach:
		s.detach.Add(1)
	case verdict.Unblock:
		s.unblock.Add(1)
	case verdict.Delete:
		s.delete.Add(1)
	case verdict.Await:
		s.await.Add(1)
	case verdict.Disown:
		s.disown.Add(1)
	case verdict.RemoveFinalizer:
		s.removeFinalizer.Add(1)
	}
}

type countedAPI struct {
	api   client.Interface
	stats *counters
}

// Get implements client.Interface.
func (a countedAPI) Get(ctx context.Context, ref client.Ref) (ownership.Object, error) {
	a.stats.gets.Add(1)
	return a.api.Get(ctx, ref)
}

// Delete implements client.Interface.
func (a countedAPI) Delete(ctx context.Context, observed ownership.Object, propagation verdict.Propagation) error {
	a.stats.deletes.Add(1)
	return a.api.Delete(ctx, observed, propagation)
}

// PatchOwners implements client.Interface.
func (a countedAPI) PatchOwners(ctx context.Context, observed ownership.Object, owners []ownership.Reference) (ownership.Object, error) {
	a.stats.patches.Add(1)
	return a.api.PatchOwners(ctx, observed, owners)
}

// PatchFinalizers implements client.Interface.
func (a countedAPI) PatchFinalizers(ctx context.Context, observed ownership.Object, finalizers []string) (ownership.Object, error) {
	a.stats.patches.Add(1)
	return a.api.PatchFinalizers(ctx, observed, finalizers)
}

// List implements client.Interface.
func (a countedAPI) List(ctx context.Context, kind ownership.Kind, namespace string, limit int64, after string) (client.Page, error) {
	a.stats.lists.Add(1)
	return a.api.List(ctx, kind, namespace, limit, after)
}

// Survey implements client.Interface.
func (a countedAPI) Survey(ctx context.Context) (feed.Watched, error) { return a.api.Survey(ctx) }

// Newest implements client.Interface.
func (a countedAPI) Newest(ctx context.Context, kinds []ownership.Kind) (client.Newest, error) {
	return a.api.Newest(ctx, kinds)
}

// Outage implements client.Interface.
func (a countedAPI) Outage(ctx context.Context, groupVersion string) (apiservice.Outage, error) {
	return a.api.Outage(ctx, groupVersion)
}

// Created implements client.Interface.
func (a countedAPI) Created(ctx context.Context, observed ownership.Object) (time.Time, error) {
	a.stats.gets.Add(1)
	return a.api.Created(ctx, observed)
}

// Reached implements client.Interface.
func (a countedAPI) Reached(kind ownership.Kind) string { return a.api.Reached(kind) }
