package barrier

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/collect/collector/client"
)

// Status returns the owners at the barrier, the longest waiting first.
func (b *Barrier) Status() []report.BarrierWait {
	b.mu.Lock()
	defer b.mu.Unlock()
	waits := make([]report.BarrierWait, 0, len(b.waiters))
	for uid, w := range b.waiters {
		waits = append(waits, report.BarrierWait{
			Owner: client.RefOf(w.owner).String(), UID: report.UID(uid), Finalizer: w.finalizer,
			Since: w.since, Rounds: w.attempts, Holds: w.holds,
		})
	}
	slices.SortFunc(waits, func(a, b report.BarrierWait) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.UID, b.UID)) })
	return waits
}

// Rounds returns how many rounds were made.
func (b *Barrier) Rounds() int64 { return b.rounds.Load() }

// Holds returns how often an owner was held after a round.
func (b *Barrier) Holds() int64 { return b.holds.Load() }

// HeldError reports why a finalizer is kept, and when to try again.
type HeldError struct {
	Finalizer string
	Holds     []report.Hold
	After     time.Duration
}

// maxHolds bounds how many holds a message names.
const maxHolds = 5

// Error names the finalizer and its holds, up to maxHolds.
func (e HeldError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "finalizer %s is kept, because dependents may have been missed: ", e.Finalizer)
	for i, h := range e.Holds {
		if i == maxHolds {
			fmt.Fprintf(&b, "; and %d more", len(e.Holds)-i)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(h.String())
	}
	return b.String()
}

// backoff returns the time that an owner stays away after so many rounds have held it. The
// back-off of the collector's queue does not fit: it ends whenever the owner is queued here.
// This back-off ends on a multiple of itself, up to a full minute, so that owners come back
// together and share a round.
func backoff(attempts int, now time.Time) time.Duration {
	const shortest, longest, doublings = 5 * time.Millisecond, time.Minute, 14
	full := min(shortest<<min(attempts-1, doublings), longest)
	wait := now.Truncate(full).Add(full).Sub(now)
	if wait < full/2 {
		wait += full
	}
	return wait
}
