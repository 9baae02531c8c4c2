package etcd

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// The past is dropped once after each burst, up to the start of the quiet time.
func TestPastIsDroppedOnceAfterEachBurst(t *testing.T) {
	q := quiet{}
	revision, began := int64(5_000_000), int64(0)
	for _, phase := range []struct {
		what  string
		rate  int64 // writes between two looks
		looks int
		drops bool // at the last look
	}{
		{"the start", 0, quietLooks + 5, false},
		{"some writes all the time", quietWrites, 3 * burstWrites / quietWrites, false},
		{"many writes", burstWrites / 2, 1, false},
		{"a pause", 0, quietLooks + 1, false},
		{"as many again", burstWrites / 2, 1, false},
		{"too short a pause", 0, quietLooks - 1, false},
		{"a few too many", quietWrites + 1, 1, false},
		{"quiet", 3, quietLooks, true},
		{"still quiet", 3, 100, false},
		{"a burst", burstWrites, 2, false},
		{"hardly anything", quietWrites, quietLooks, true},
	} {
		for i := range phase.looks {
			revision += phase.rate
			if i == 0 {
				began = revision
			}
			want := int64(0)
			if phase.drops && i == phase.looks-1 {
				want = began
			}
			if got := q.observe(revision); got != want {
				t.Errorf("%s, look %d: dropped until %d, want %d", phase.what, i+1, got, want)
			}
		}
	}
}

// past is a window that records its calls.
type past struct {
	store          *Store
	empty, large   []int64 // the revisions
	firstEmptiedAt int64   // the revision of the store
}

// Empty implements Window.
func (p *past) Empty(revision int64) {
	if len(p.empty) == 0 {
		p.firstEmptiedAt, _ = p.store.Revision(context.Background())
	}
	p.empty = append(p.empty, revision)
}

// EmptyLarge implements Window.
func (p *past) EmptyLarge(revision int64) { p.large = append(p.large, revision) }

// The past is dropped in etcd first, which is a write, and then in the windows.
func TestPastIsDroppedInEtcdAndInWindows(t *testing.T) {
	s := openUnmaintained(t)
	kept, removed := &past{store: s}, &past{store: s}
	s.AddWindow(kept)
	s.AddWindow(removed)()
	first := s.put(t, "/configmaps/team/a", "one")
	last := s.put(t, "/configmaps/team/a", "two")
	for range 2 { // etcd does nothing the second time
		must(t, s.dropUntil(t.Context(), last))
	}
	must(t, s.dropUntil(t.Context(), 0))
	if _, err := s.client.Get(t.Context(), "/", clientv3.WithRev(first)); !errors.Is(err, rpctypes.ErrCompacted) {
		t.Errorf("a read at a revision of the past: %v", err)
	}
	if !slices.Equal(kept.empty, []int64{last, last}) || len(kept.large)+len(removed.empty) > 0 {
		t.Errorf("a window is emptied at %v, large at %v, and after its removal at %v", kept.empty, kept.large, removed.empty)
	}
	if kept.firstEmptiedAt <= last {
		t.Errorf("windows are emptied at revision %d, want one after the last write, %d", kept.firstEmptiedAt, last)
	}
}

// Each look empties the large windows that have had no event since the look before.
func TestLooksEmptyLargeWindows(t *testing.T) {
	s := openUnmaintained(t)
	w := &past{store: s}
	s.AddWindow(w)
	ctx, cancel := context.WithCancel(t.Context())
	looks := make(ticks)
	var looking sync.WaitGroup
	looking.Go(func() { s.dropPast(ctx, looks) })
	written := s.put(t, "/configmaps/team/a", "x")
	for range 3 { // the third begins when the second has ended
		looks <- time.Time{}
	}
	cancel()
	looking.Wait()
	if want := []int64{0, written}; len(w.large) < 2 || !slices.Equal(w.large[:2], want) {
		t.Errorf("windows are emptied at %v, want %v first", w.large, want)
	}
}

// openUnmaintained opens a store that empties no window by itself.
func openUnmaintained(t *testing.T) *Store {
	t.Helper()
	s := open(t)
	return &Store{client: s.client, prefix: s.prefix, log: s.log}
}

// ticks is a clock.Ticker that ticks when a test sends.
type ticks chan time.Time

// C implements clock.Ticker.
func (t ticks) C() <-chan time.Time { return t }

// Stop implements clock.Ticker.
func (ticks) Stop() {}
