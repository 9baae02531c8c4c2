package etcd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/utils/clock"
)

const (
	// quietInterval is the interval between two looks at the store. The store is quiet if it had at
	// most quietWrites writes in that time.
	quietInterval = 2 * time.Second
	quietWrites   = 40
	// quietLooks is the number of quiet looks in a row after which the past of a burst is dropped.
	quietLooks = 7
	// burstWrites is the number of writes outside of quiet times that make a burst.
	burstWrites = 10_000
	// fewWrites is the number of writes between two looks up to which the log in memory is shortened if it is large.
	// With more writes, smaller entries replace the large ones soon.
	fewWrites = 10
)

// quiet decides when the past of a burst of writes is dropped.
//
// The revisions that etcd keeps for watches that resume, and the events in the windows of the watch
// caches, are small objects in all parts of a heap that was large at the time. While they exist,
// almost none of its pages can be returned: after the creation and deletion of 100 000 objects, 60
// MB of them held 350 MB. When the store is quiet, all of its watchers have received the events.
type quiet struct {
	seen  int64 // the revision of the last look; 0 before the first
	burst int64 // writes outside of quiet times since the past was dropped
	looks int   // quiet looks in a row
	since int64 // the revision at the first of these
}

// observe records the current revision. It returns the revision up to which the past must be dropped
// now, or 0.
func (q *quiet) observe(revision int64) (until int64) {
	writes := revision - q.seen
	first := q.seen == 0
	q.seen = revision
	switch {
	case first:
		return 0
	case writes > quietWrites:
		q.burst += writes
		q.looks = 0
		return 0
	case q.looks == 0:
		q.since = revision
	}
	q.looks++
	if q.looks < quietLooks || q.burst < burstWrites {
		return 0
	}
	q.burst = 0
	return q.since
}

// dropPast drops the past of bursts, in etcd and in the windows of the watch caches, until ctx ends.
func (s *Store) dropPast(ctx context.Context, ticks clock.Ticker) {
	defer ticks.Stop()
	var q quiet
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C():
		}
		before := q.seen
		revision, err := s.Revision(ctx)
		if err == nil {
			err = s.dropUntil(ctx, q.observe(revision))
		}
		if err == nil {
			s.windows.emptyLarge(before)
			if revision-before <= fewWrites {
				err = s.shortenLog(ctx)
			}
		}
		if err != nil && ctx.Err() == nil {
			s.log.ErrorContext(ctx, "the past of a burst of writes cannot be dropped", "error", err)
		}
	}
}

// dropUntil drops the past before a revision; nothing if the revision is 0.
func (s *Store) dropUntil(ctx context.Context, revision int64) error {
	if revision == 0 {
		return nil
	}
	// The compaction comes first, because it causes a write: windows are emptied at a revision
	// after their last event.
	err := s.compactUntil(ctx, revision)
	s.windows.empty(revision)
	return err
}

// compactUntil compacts etcd in a turn of the periodic compactor, which then skips its next turn.
// Otherwise that turn would fail.
func (s *Store) compactUntil(ctx context.Context, revision int64) error {
	const attempts = 3 // the first one reads the number of turns; other servers may take a turn before the next ones
	version := int64(0)
	for range attempts {
		turn, _, compacted, err := etcd3.Compact(ctx, s.client, version, revision)
		switch {
		case errors.Is(err, rpctypes.ErrCompacted):
			return nil
		case err != nil:
			return fmt.Errorf("compact etcd: %w", Cause(err))
		case compacted >= revision:
			return nil
		}
		version = turn
	}
	return nil // other servers compact all the time
}

// Window is the window of past events in a watch cache.
type Window interface {
	// Empty drops the events if they are many, and none is after a revision.
	Empty(revision int64)
	// EmptyLarge drops the events if they take many bytes, and none is after a revision.
	EmptyLarge(revision int64)
}

// AddWindow makes a store with its member in this process empty a window when it is quiet, until remove is called.
func (s *Store) AddWindow(w Window) (remove func()) { return s.windows.add(w) }

// windows are the windows of all watch caches.
type windows struct {
	mu  sync.Mutex
	all map[Window]struct{} // guarded by mu
}

// add adds a window, and returns the function that removes it.
func (s *windows) add(w Window) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = make(map[Window]struct{})
	}
	s.all[w] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.all, w)
	}
}

// empty empties the windows whose last event is not after a revision.
func (s *windows) empty(revision int64) {
	for _, w := range s.list() {
		w.Empty(revision)
	}
}

// emptyLarge empties the windows that keep many bytes and whose last event is not after a revision.
func (s *windows) emptyLarge(revision int64) {
	for _, w := range s.list() {
		w.EmptyLarge(revision)
	}
}

func (s *windows) list() []Window {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.all))
}
