package collector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/coppice-dev/coppice/internal/collect/collector/barrier"
	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/collect/pace"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
)

// ReasonInvalidNamespace is the reason of the Event about an owner reference that no
// object can match (R5). kube-controller-manager uses the same reason.
const ReasonInvalidNamespace = "OwnerRefInvalidNamespace"

// report writes an Event about owner references that are out of scope (R5): once for each
// set of references, not again for every change of the object.
func (c *Collector) report(ctx context.Context, facts verdict.Facts) {
	if c.config.Events == nil || len(facts.Reports) == 0 {
		return
	}
	message := reportOf(facts.Object, facts.Reports)
	if !c.state.isNewReport(facts.Object.UID, message) {
		return
	}
	c.warn(ctx, facts.Object, ReasonInvalidNamespace, message)
}

// ReasonBlocked is the reason of the Event about an owner whose finalizer is kept
// because a dependent may have been missed (R15).
const ReasonBlocked = "GarbageCollectionBlocked"

// ReasonPaused is the reason of the Event about the object at whose deletion the breaker
// paused the deletions of its kind.
const ReasonPaused = "GarbageCollectionPaused"

// reportBlocked logs and writes an Event that the barrier holds an owner.
func (c *Collector) reportBlocked(ctx context.Context, owner ownership.Object, message string) {
	c.log.WarnContext(ctx, "deletion held", "object", client.RefOf(owner).String(), "uid", string(owner.UID), "reason", message)
	c.warn(ctx, owner, ReasonBlocked, message)
}

// reportPaused logs and writes an Event that the deletions of a kind are paused.
func (c *Collector) reportPaused(ctx context.Context, self ownership.Object) {
	c.stats.tripped.Add(1)
	for _, p := range c.breaker.pauses() {
		if p.Kind != self.Kind.String() {
			continue
		}
		c.log.WarnContext(ctx, "deletions paused", "kind", p.Kind, "deleted", p.Deleted, "objects", p.Objects)
		c.warn(ctx, self, ReasonPaused, fmt.Sprintf(
			"deletions of %s are paused: %d of %d objects were collected within %s. They continue when they are resumed by hand",
			p.Kind, p.Deleted, p.Objects, c.breaker.window()))
	}
}

// warn writes an Event. If that fails, the error is only logged: Events are for people to
// read.
func (c *Collector) warn(ctx context.Context, regarding ownership.Object, reason, message string) {
	if c.config.Events == nil {
		return
	}
	c.stats.events.Add(1)
	if err := c.config.Events.Warn(ctx, regarding, reason, message); err != nil && !pace.IsUnreachable(err) {
		object := client.RefOf(regarding).String()
		c.failures.Warn(ctx, "event not written", object, err, "object", object, "reason", reason)
	}
}

// maxReported bounds the number of references that one Event names.
const maxReported = 5

func reportOf(o ownership.Object, reports []verdict.Report) string {
	var b strings.Builder
	for i, report := range reports {
		if i == maxReported {
			fmt.Fprintf(&b, "; and %d more", len(reports)-i)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		r := report.Reference
		fmt.Fprintf(&b, "ownerRef [%s/%s, name: %s, uid: %s]", r.APIVersion, r.Kind, r.Name, r.UID)
		if o.Namespace != "" {
			fmt.Fprintf(&b, " does not exist in namespace %q", o.Namespace)
		}
		b.WriteString(": " + report.Why)
	}
	return b.String()
}

// logChange logs that an object was changed, and why. The text is only made if the level
// is enabled.
func (c *Collector) logChange(ctx context.Context, what string, self ownership.Object, d verdict.Decision) {
	if c.log.Enabled(ctx, slog.LevelInfo) {
		c.log.InfoContext(ctx, what, "object", client.RefOf(self).String(), "uid", string(self.UID), "decision", d.String()) //nolint:sloglint // one of three constants
	}
}

// logIdle logs that nothing was changed, and why. Most decisions are of that kind.
func (c *Collector) logIdle(ctx context.Context, self ownership.Object, d verdict.Decision) {
	if c.log.Enabled(ctx, slog.LevelDebug) {
		c.log.DebugContext(ctx, "decided", "object", client.RefOf(self).String(), "uid", string(self.UID), "decision", d.String())
	}
}

// logFailure logs why an object is not settled.
func (c *Collector) logFailure(ctx context.Context, uid ownership.UID, outcome Outcome) {
	unfinished, isUnfinished := errors.AsType[unfinishedError](outcome.Err)
	switch {
	case outcome.Next == Settled, ctx.Err() != nil, isUnfinished && !unfinished.isNew:
	case errors.Is(outcome.Err, errUnobserved), errors.As(outcome.Err, &barrier.HeldError{}), isProtected(outcome.Err), errors.As(outcome.Err, &refusedError{}), errors.As(outcome.Err, &busyError{}),
		pace.IsUnreachable(outcome.Err), pace.IsNotSent(outcome.Err):
		c.log.DebugContext(ctx, "not settled", "uid", string(uid), "error", pace.Brief(outcome.Err))
	default:
		c.log.WarnContext(ctx, "not settled", "uid", string(uid), "after", outcome.After, "error", pace.Brief(outcome.Err))
	}
}
