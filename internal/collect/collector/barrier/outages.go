package barrier

import (
	"context"

	"github.com/coppice-dev/coppice/internal/rules/apiservice"
)

// Group versions that discovery has never been able to read, and the owners that may have dependents there.

// outages are what is known of the group versions that could not be read.
type outages map[string]apiservice.Outage

// readOutages asks why group versions do not answer, and when the owners in the round were created: an owner that is
// younger than an outage cannot have dependents there. After an error, the group version holds all owners.
func (r *round) readOutages(ctx context.Context, groupVersions []string) outages {
	all, reader := outages{}, r.barrier.config.Reader
	datable := false
	for _, groupVersion := range groupVersions {
		if outage, err := reader.Outage(ctx, groupVersion); err == nil {
			all[groupVersion] = outage
			datable = datable || outage.IsDated()
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
	return o[groupVersion].Holds(w.created, w.finalizer)
}

// why returns what holds an owner, and what ends that.
func (o outages) why(groupVersion string) string { return o[groupVersion].Says(groupVersion) }
