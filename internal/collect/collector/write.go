package collector

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/collect/auditreason"
	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/collect/pace"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
)

// inEpoch returns a context for a write that was decided on in an epoch. The write is not sent in a later one, nor before
// the server was verified after an outage: a restored backup may have the object as it was observed, and its owner, too
// (R4).
func (c *Collector) inEpoch(ctx context.Context, epoch int) context.Context {
	return pace.WithCondition(ctx, func() error {
		if c.state.Epoch() != epoch {
			return errNewEpoch
		}
		return nil
	})
}

// delete sends the one DELETE that collects an object (R10, R11).
func (c *Collector) delete(ctx context.Context, epoch int, f verdict.Facts, d verdict.Delete) error {
	self := f.Object
	if err := c.checkProtected(self); err != nil {
		return err
	}
	switch c.breaker.allow(self.Kind, c.state.Count) {
	case granted:
	case tripped:
		c.reportPaused(ctx, self)
		fallthrough
	case denied:
		c.stats.paused.Add(1)
		return nil // Resume brings it back
	}
	record := c.recordOf(f, d)
	err := c.api.Delete(auditreason.NewContext(c.inEpoch(ctx, epoch), reasonOf(&record)), self, d.Propagation)
	c.record(record, err)
	switch refused, isRefused := refusal.Of(err); {
	case err == nil:
		c.state.wrote(epoch, self)
		c.latency.observe(c.clock.Now(), f.Owners)
		c.logChange(ctx, "collected", self, d)
		return nil
	case isRefused && refused.By == refusal.ByProtection:
		c.breaker.giveBack(self.Kind)
		return c.hold(ctx, f, refused)
	case isRefused:
		c.breaker.giveBack(self.Kind)
		return refusedWrite{self, waitingOwners(f), record.Action, refused, err}
	case apierrors.IsNotFound(err):
		return c.goneAlready(epoch, self)
	default:
		c.breaker.giveBack(self.Kind)
		return fmt.Errorf("delete %s: %w", client.RefOf(self), err)
	}
}

// writeOwners writes a list of owner references that was computed from the facts (R9, R10).
func (c *Collector) writeOwners(ctx context.Context, epoch int, f verdict.Facts, owners []ownership.Reference, d verdict.Decision) error {
	self := f.Object
	record := c.recordOf(f, d)
	now, err := c.api.PatchOwners(c.inEpoch(ctx, epoch), self, owners)
	c.record(record, err)
	switch refused, isRefused := refusal.Of(err); {
	case err == nil:
		c.state.wrote(epoch, self)
		// The answer is newer than the observation: the next decision is computed from it.
		c.state.refresh(epoch, now)
		c.logChange(ctx, "owner references written", self, d)
		return nil
	case isRefused:
		return refusedWrite{self, waitingOwners(f), record.Action, refused, err}
	case apierrors.IsNotFound(err):
		return c.goneAlready(epoch, self)
	default:
		return fmt.Errorf("write owner references of %s: %w", client.RefOf(self), err)
	}
}

// complete ends a foreground or orphan deletion, when it is proven that no
// dependent was missed (R15).
func (c *Collector) complete(ctx context.Context, epoch int, f verdict.Facts, d verdict.RemoveFinalizer) error {
	if proven, err := c.barrier.Prove(ctx, f.Object, d.Finalizer); !proven {
		return err
	}
	if err := c.removeFinalizer(ctx, epoch, f, d); err != nil {
		return err // the proof still holds for the next try
	}
	c.barrier.Forget(f.Object.UID)
	return nil
}

// removeFinalizer removes a finalizer of the collector's (R13, R14).
func (c *Collector) removeFinalizer(ctx context.Context, epoch int, f verdict.Facts, d verdict.RemoveFinalizer) error {
	self := f.Object
	record := c.recordOf(f, d)
	now, err := c.api.PatchFinalizers(c.inEpoch(ctx, epoch), self, d.Remaining)
	c.record(record, err)
	switch refused, isRefused := refusal.Of(err); {
	case err == nil:
		c.state.wrote(epoch, self)
		if len(d.Remaining) > 0 {
			// Without finalizers the object is gone, and the answer shows its last state: only its DELETED
			// event is still to come.
			c.state.refresh(epoch, now)
		}
		c.logChange(ctx, "finalizer removed", self, d)
		return nil
	case isRefused:
		return refusedWrite{self, nil, record.Action, refused, err}
	case apierrors.IsNotFound(err):
		return c.goneAlready(epoch, self)
	default:
		return fmt.Errorf("remove finalizer %s of %s: %w", d.Finalizer, client.RefOf(self), err)
	}
}

// observe records a decision without applying it. The observed version counts as written, so that
// the decision is recorded once.
func (c *Collector) observe(ctx context.Context, f verdict.Facts, d verdict.Decision) {
	r := c.recordOf(f, d)
	r.Answer, r.Time = report.AnswerNone, c.clock.Now()
	r.Object.NamespaceUID = report.UID(c.state.homeAt(r.Object.Namespace, r.Object.ResourceVersion))
	c.journal.add(r)
	c.state.wrote(c.state.Epoch(), f.Object)
	c.logChange(ctx, "would be done", f.Object, d)
}

// goneAlready records that a write found no object of that name. It does not remove the object
// from the graph. The answer is as reliable as a live read and would allow that, but the claims
// on the object would become Unknown. The DELETED event is on its way and is evidence for all
// claims at no cost (R3); if it is lost, the next list shows that the object is gone. So the
// known version counts as written, and needs no further work.
func (c *Collector) goneAlready(epoch int, self ownership.Object) error {
	c.state.wrote(epoch, self)
	return nil
}
