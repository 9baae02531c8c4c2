package barrier

import (
	"context"
	"time"

	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// Group versions that discovery has never been able to read, and the owners that may have dependents there.

// maxSkew bounds the difference between the clocks of API servers: of the one that notes the begin of an outage, and the
// one that creates an owner.
const maxSkew = time.Minute

// outages are what is known of the group versions that could not be read.
type outages map[string]client.Outage

// readOutages asks why group versions do not answer, and when the owners in the round were created: an owner that is
// younger than an outage cannot have dependents there. After an error, the group version holds all owners.
func (r *round) readOutages(ctx context.Context, groupVersions []string) outages {
	all, reader := outages{}, r.barrier.config.Reader
	datable := false
	for _, groupVersion := range groupVersions {
		if outage, err := reader.Outage(ctx, groupVersion); err == nil {
			all[groupVersion] = outage
			datable = datable || !outage.Since.IsZero()
		}
	}
	if !datable {
		return all
	}
	var undated []*waiter
	for _, batch := range r.batches {
		for _, w := range batch.waiters {
			if w.created.IsZero() {
				undated = append(undated, w)
			}
		}
	}
	limit := 1
	if r.barrier.isOpen() {
		limit = r.barrier.config.Lists
	}
	forEach(limit, undated, func(w *waiter) {
		if created, err := reader.Created(ctx, w.owner); err == nil {
			w.created = created
		}
	})
	return all
}

// holds reports whether a group version that does not answer may have dependents of an owner (R15).
func (o outages) holds(groupVersion string, w *waiter) bool {
	outage := o[groupVersion]
	switch {
	case outage.Since.IsZero():
		return true
	case !w.created.IsZero() && w.created.After(outage.Since.Add(maxSkew)):
		return false // nothing could be created there since its UID exists
	case outage.NeverUp && w.finalizer == ownership.FinalizerForeground:
		// Only an earlier APIService could have served dependents. They are deleted when the group answers, like all
		// objects whose owner is absent. After an orphan deletion, that would be wrong.
		return false
	}
	return true
}

// why returns what holds an owner, and what ends that.
func (o outages) why(groupVersion string) string {
	const unknown = "its discovery fails, so its resources are unknown"
	outage := o[groupVersion]
	if outage.Since.IsZero() {
		return unknown
	}
	why := unknown + "; APIService " + client.APIServiceOf(groupVersion) + " has been unavailable since " + outage.Since.UTC().Format(time.RFC3339)
	if outage.Why != "" {
		why += " (" + outage.Why + ")"
	}
	return why + ": bring back its service, or delete the APIService if nothing needs it"
}
