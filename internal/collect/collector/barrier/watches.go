package barrier

import (
	"context"
	"time"

	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// The barrier avoids lists as follows. A server may return the revision of the last write to
// each kind (Reader.Newest). When the watch of a kind has reached that revision, it has shown
// all dependents of that kind that existed when the round began: that is the proof, and a list
// would add nothing.
//
// The proof is valid only while the server's history is the watched one (R4), which
// client.Newest.History identifies. After a change of history, the earlier events of a watch may
// belong to objects that no longer exist: the barrier then lists a kind until the feed has
// listed it again.

const (
	// lagTimeout is the time that a round waits for watches that are behind and do not move, before
	// it lists their kinds. The watch of a busy server is behind by milliseconds, and moves all the
	// time.
	lagTimeout = 100 * time.Millisecond
	// lagInterval is the time between two checks of these watches.
	lagInterval = 2 * time.Millisecond
)

// watchHistory is the history of the server that the watches show. It is guarded by Barrier.mu.
type watchHistory struct {
	current string
	// before are, by kind, the revisions that the watches had reached in the previous history; nil
	// in the first.
	before map[ownership.Kind]string
	// relisted are the kinds that the feed has listed since; nil in the first history.
	relisted map[ownership.Kind]bool
}

// follow records the server's history. The first history is the one that the watches show: both
// have begun just now.
func (h *watchHistory) follow(history string, reached map[ownership.Kind]string) {
	if h.current != "" && h.current != history {
		h.before, h.relisted = reached, make(map[ownership.Kind]bool)
	}
	h.current = history
}

// listed records that the feed has listed a kind, so that covers may trust its watch.
func (h *watchHistory) listed(kind ownership.Kind) {
	if h.relisted != nil {
		h.relisted[kind] = true
	}
}

// covers reports whether the revision that the watch of a kind has reached belongs to the
// current history.
func (h *watchHistory) covers(kind ownership.Kind, reached string) bool {
	before := h.before[kind]
	return before == "" || h.relisted[kind] && reached != before
}

// caughtUp returns the kinds whose watches have shown every write before the call.
func (b *Barrier) caughtUp(ctx context.Context, kinds []ownership.Kind) map[ownership.Kind]bool {
	if len(kinds) == 0 {
		return nil
	}
	reached := make(map[ownership.Kind]string)
	for _, kind := range kinds {
		reached[kind] = b.config.Reader.Reached(kind)
	}
	newest, err := b.config.Reader.Newest(ctx, kinds)
	if err != nil || newest.History == "" {
		return nil
	}
	for _, r := range reached {
		if n, ok := client.Revision(r); ok && n > newest.Now {
			return nil // the watch is of another history
		}
	}
	b.mu.Lock()
	b.watched.follow(newest.History, reached)
	b.mu.Unlock()
	caughtUp := make(map[ownership.Kind]bool)
	behind := make(map[ownership.Kind]string)
	for still, waited := time.Duration(0), time.Duration(0); ; still, waited = still+lagInterval, waited+lagInterval {
		if b.compare(newest.Writes, caughtUp, behind) {
			still = 0
		}
		if len(caughtUp) == len(newest.Writes) || still >= lagTimeout || waited >= longestPeriod || !b.isOpen() {
			return caughtUp
		}
		select {
		case <-b.config.Clock.After(lagInterval):
		case <-ctx.Done():
			return caughtUp
		}
	}
}

// compare adds the kinds whose watch has reached their last write to caughtUp. It records the
// others in behind, with the position of their watch, and reports whether one of these watches
// has moved.
func (b *Barrier) compare(writes map[ownership.Kind]uint64, caughtUp map[ownership.Kind]bool, behind map[ownership.Kind]string) (moved bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for kind, written := range writes {
		if caughtUp[kind] {
			continue
		}
		reached := b.config.Reader.Reached(kind)
		if n, ok := client.Revision(reached); ok && n >= written && b.watched.covers(kind, reached) {
			caughtUp[kind] = true
		} else if behind[kind] != reached {
			behind[kind] = reached
			moved = true
		}
	}
	return moved
}
