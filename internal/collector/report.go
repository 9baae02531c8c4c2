package collector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/coppice-dev/coppice/internal/ownership"
	"github.com/coppice-dev/coppice/internal/verdict"
)

// ReasonInvalidNamespace is the reason of the Event about an owner reference
// that no object can answer to (R5). It is upstream's, so that nobody has to
// look for another.
const ReasonInvalidNamespace = "OwnerRefInvalidNamespace"

// report writes an Event about owner references that are out of scope: once,
// not again for every change of the object, but again when they change.
func (c *Collector) report(ctx context.Context, facts verdict.Facts) {
	if c.events == nil || len(facts.Reports) == 0 {
		return
	}
	message := reportOf(facts.Object, facts.Reports)
	if !c.state.isNews(facts.Object.UID, message) {
		return
	}
	c.warn(ctx, facts.Object, ReasonInvalidNamespace, message)
}

// ReasonBlocked is the reason of the Event about an owner whose finalizer is kept
// because a dependent may have been missed (R15).
const ReasonBlocked = "GarbageCollectionBlocked"

// tellBlocked says that the barrier holds an owner.
func (c *Collector) tellBlocked(ctx context.Context, owner ownership.Object, message string) {
	c.log.WarnContext(ctx, "deletion held", "object", RefOf(owner).String(), "uid", string(owner.UID), "reason", message)
	c.warn(ctx, owner, ReasonBlocked, message)
}

// warn writes an Event. It is for people to read; when it fails, nothing else does.
func (c *Collector) warn(ctx context.Context, regarding ownership.Object, reason, message string) {
	if c.events == nil {
		return
	}
	c.stats.events.Add(1)
	if err := c.events.Warn(ctx, regarding, reason, message); err != nil {
		c.log.WarnContext(ctx, "event not written", "object", RefOf(regarding).String(), "reason", reason, "error", err)
	}
}

// maxReported bounds how many references one Event names.
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

// logChange says that the world was changed, and why. The words are not made when
// nobody listens.
func (c *Collector) logChange(ctx context.Context, what string, self ownership.Object, d verdict.Decision) {
	if c.log.Enabled(ctx, slog.LevelInfo) {
		c.log.InfoContext(ctx, what, "object", RefOf(self).String(), "uid", string(self.UID), "decision", d.String()) //nolint:sloglint // one of three constants
	}
}

// logIdle says that nothing was changed, and why: so are most decisions.
func (c *Collector) logIdle(ctx context.Context, self ownership.Object, d verdict.Decision) {
	if c.log.Enabled(ctx, slog.LevelDebug) {
		c.log.DebugContext(ctx, "decided", "object", RefOf(self).String(), "uid", string(self.UID), "decision", d.String())
	}
}

// logFailure says what keeps an object from being settled.
func (c *Collector) logFailure(ctx context.Context, uid ownership.UID, outcome Outcome) {
	switch {
	case outcome.Next == Settled, ctx.Err() != nil:
	case errors.Is(outcome.Err, errUnobserved), errors.As(outcome.Err, &heldError{}):
		c.log.DebugContext(ctx, "not settled", "uid", string(uid), "error", outcome.Err)
	default:
		c.log.WarnContext(ctx, "not settled", "uid", string(uid), "after", outcome.After, "error", outcome.Err)
	}
}
