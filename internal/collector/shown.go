package collector

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/coppice-dev/coppice/internal/ownership"
)

// How the barrier does without lists. A server may tell to which revision each kind was
// written last (API.Newest). When the watch of a kind has come there, it has shown all
// dependents of that kind that there were when the round began: that is the proof, and
// a list could add nothing to it.
//
// It holds only while the server's history is the one that was watched. Newest.History
// tells that. When it is another, what a watch had come to before may be of a world that
// is not there any more: a kind is listed then until the feed has listed it anew.

const (
	// lagPatience is how long a round waits for watches that are behind and do not move,
	// before it lists their kinds. A watch of a server that is busy is behind by
	// milliseconds, and moves all the time.
	lagPatience = 100 * time.Millisecond
	// lagStep is how often it looks.
	lagStep = 2 * time.Millisecond
)

// trust is which history the watches are known to show. It is guarded by barrier.mu.
type trust struct {
	history string
	// old are the kinds that were not listed anew since the history is that one, with
	// what their watches had come to before.
	old map[ownership.Kind]string
	// anew are the kinds that the feed has listed since.
	anew map[ownership.Kind]bool
}

// follow takes in which history the server has now. The first that there is shows what
// the watches show: both have begun just now.
func (t *trust) follow(history string, reached map[ownership.Kind]string) {
	if t.history != "" && t.history != history {
		t.old, t.anew = reached, make(map[ownership.Kind]bool)
	}
	t.history = history
}

// listed takes in that the feed has listed a kind. How far it has come since is told later.
func (t *trust) listed(kind ownership.Kind) {
	if t.anew != nil {
		t.anew[kind] = true
	}
}

// believes tells whether what the watch of a kind has come to is of this history.
func (t *trust) believes(kind ownership.Kind, reached string) bool {
	old := t.old[kind]
	return old == "" || t.anew[kind] && reached != old
}

// shown finds the kinds of which the watches have shown everything that was written
// before the call.
func (b *barrier) shown(ctx context.Context, kinds []ownership.Kind) map[ownership.Kind]bool {
	if len(kinds) == 0 {
		return nil
	}
	reached := make(map[ownership.Kind]string)
	for _, kind := range kinds {
		reached[kind] = b.api.Reached(kind)
	}
	newest, err := b.api.Newest(ctx, kinds)
	if err != nil || newest.History == "" {
		return nil
	}
	for _, r := range reached {
		if n, ok := revisionOf(r); ok && n > newest.Now {
			return nil // of another history than the watch
		}
	}
	b.mu.Lock()
	b.trust.follow(newest.History, reached)
	b.mu.Unlock()
	shown := make(map[ownership.Kind]bool)
	since := make(map[ownership.Kind]string)
	for still, waited := time.Duration(0), time.Duration(0); ; still, waited = still+lagStep, waited+lagStep {
		if b.compare(newest.Writes, shown, since) {
			still = 0
		}
		if len(shown) == len(newest.Writes) || still >= lagPatience || waited >= longestRound || !b.isOpen() {
			return shown
		}
		select {
		case <-b.clock.After(lagStep):
		case <-ctx.Done():
			return shown
		}
	}
}

// compare adds the kinds whose watch has come to where they were written last. It
// returns whether one of the others has moved since the last time.
func (b *barrier) compare(writes map[ownership.Kind]uint64, shown map[ownership.Kind]bool, since map[ownership.Kind]string) (moved bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for kind, written := range writes {
		if shown[kind] {
			continue
		}
		reached := b.api.Reached(kind)
		if n, ok := revisionOf(reached); ok && n >= written && b.trust.believes(kind, reached) {
			shown[kind] = true
		} else if since[kind] != reached {
			since[kind] = reached
			moved = true
		}
	}
	return moved
}

// kinds are those that have to be read for somebody in the round, sorted.
func (r *round) kinds() []ownership.Kind {
	var kinds []ownership.Kind
	seen := make(map[ownership.Kind]bool)
	for _, t := range r.turns {
		for _, kind := range t.kinds {
			if !seen[kind] {
				seen[kind] = true
				kinds = append(kinds, kind)
			}
		}
	}
	slices.SortFunc(kinds, func(a, b ownership.Kind) int { return strings.Compare(a.String(), b.String()) })
	return kinds
}
