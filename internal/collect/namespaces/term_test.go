package namespaces

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coppice-dev/coppice/internal/collect/lifecycle"
)

// A controller that stands by makes no request about a namespace that terminates, and empties it when it leads; in each
// term anew, and also a namespace that has begun to terminate between two terms.
func TestNamespacesAreEmptiedByTheLeaderOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeServer(t, everyType...)
		c, err := New(Config{Client: w.typed, Metadata: w, Catalogue: w, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		observing, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Observe(observing) }()
		lead := func(term func()) {
			t.Helper()
			ctx, end := context.WithCancel(t.Context())
			led := make(chan error, 1)
			go func() { led <- c.Lead(ctx) }()
			synctest.Wait()
			if err := c.Lead(ctx); !errors.Is(err, lifecycle.ErrAlreadyStarted) || !c.Synced() || c.Ready() != nil {
				t.Errorf("Lead while it leads: %v; synced: %t; ready: %v", err, c.Synced(), c.Ready())
			}
			term()
			end()
			if err := <-led; err != nil || c.Synced() {
				t.Errorf("Lead: %v; synced afterwards: %t", err, c.Synced())
			}
		}
		standBy := func(d time.Duration) {
			t.Helper()
			before := w.tally()
			time.Sleep(d)
			if now := w.tally(); !slices.Equal(before, now) {
				t.Errorf("requests while it stands by: %v, then %v", before, now)
			}
		}
		synctest.Wait()
		w.create("shop", pods, "a")
		w.terminating("shop")
		standBy(time.Hour)
		if c.Warm() != nil {
			t.Error("it has not observed the namespaces")
		}
		lead(func() { w.goneWithin("shop", time.Second) })
		w.create("held", pods, "a", "example.com/x")
		w.terminating("held")
		standBy(time.Hour)
		lead(func() { time.Sleep(time.Minute) })
		w.release(pods)
		standBy(time.Hour)
		lead(func() { w.goneWithin("held", time.Second) })
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
