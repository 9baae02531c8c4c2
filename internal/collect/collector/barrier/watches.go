package barrier

import (
	"context"
	"time"

	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// How the barrier avoids lists. A server may tell the revision at which each kind was last
// written to (Reader.Newest). When the watch of a kind has come to that revision, it has shown
// all dependents of that kind that existed when the round began: that is the proof, and a list
// could add nothing to it.
//
// It holds only while the server's history is the one that was watched (R4), which
// client.Newest.History identifies. After a change of history, what a watch had come to before
// may belong to objects that no longer exist: a kind is then listed until the feed has listed it
// again.

const (
	// lagTimeout is the time that a round waits for watches that are behind and do not move,
	// before it lists their kinds. A watch of a busy server is behind by milliseconds, and moves
	// all the time.
	lagTimeout = 100 * time.Millisecond
	// lagInterval is the time between two looks at them.
	lagInterval = 2 * time.Millisecond
)

// watchHistory is the history of the server that the watches show. It is guarded by Barrier.mu.
type watchHistory struct {
	current string
	// before are, by kind, what the watches had come to in the history before; nil in the first.
	before map[ownership.Kind]string
	// relisted are the kinds that the feed has listed since; nil in the first history.
	relisted map[ownership.Kind]bool
}

// follow records the server's history. The first one is what the watches show: both have
// begun just now.
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

// covers reports whether what the watch of a kind has come to is of the current history.
func (h *watchHistory) covers(kind ownership.Kind, reached string) bool {
	before := h.before[kind]
	return before == "" || h.relisted[kind] && reached != before
}

// caughtUp returns the kinds of which the watches have shown everything that was written
// before the call.
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

// compare adds the kinds whose watch has come to where they were written last. The others
// are behind, with what they have come to; compare reports whether one of them has moved.
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
