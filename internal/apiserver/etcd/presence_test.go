package etcd

import (
	"context"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// long is a time to live that no test reaches.
const long = time.Hour

func present(t *testing.T, p *Presence, want ...string) {
	t.Helper()
	got, err := p.Names(context.Background())
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("present: %q, %v; want %q", got, err, want)
	}
}

// Servers see each other from the first renewal on, until one ends its presence.
func TestServersSeeEachOther(t *testing.T) {
	for name, newStore := range stores() {
		t.Run(name, func(t *testing.T) {
			s, ctx := newStore(t), context.Background()
			a, b := s.Presence("servers", "10.0.0.1:6443", long), s.Presence("servers", "[fd00::1]:6443", long)
			other, silent := s.Presence("servers-of-another-kind", "c", long), s.Presence("servers", "", long)
			present(t, a)
			for _, p := range []*Presence{a, b, other, silent, a} {
				if err := p.Renew(ctx); err != nil {
					t.Fatal(err)
				}
			}
			present(t, a, "10.0.0.1:6443", "[fd00::1]:6443")
			present(t, silent, "10.0.0.1:6443", "[fd00::1]:6443")
			present(t, other, "c")
			for range 2 { // a second call does nothing
				if err := a.End(ctx); err != nil {
					t.Fatal(err)
				}
			}
			present(t, b, "[fd00::1]:6443")
			if err := silent.End(ctx); err != nil {
				t.Error(err)
			}
		})
	}
}

// A server that has not renewed its presence in time is absent, until it renews it.
func TestPresenceExpires(t *testing.T) {
	s, ctx := open(t), context.Background()
	gone, watching := s.Presence("servers", "a", time.Millisecond), s.Presence("servers", "", long)
	if gone.seconds != 1 {
		t.Errorf("lives for %d s, want 1: etcd counts in seconds", gone.seconds)
	}
	if err := gone.Renew(ctx); err != nil {
		t.Fatal(err)
	}
	eventually.Holds(t, "the presence is over", func() bool {
		names, err := watching.Names(ctx)
		return err == nil && len(names) == 0
	})
	expired := gone.lease
	if err := gone.Renew(ctx); err != nil {
		t.Fatal(err)
	}
	if gone.lease == expired || gone.lease == clientv3.NoLease {
		t.Errorf("lease %d after %d has expired", gone.lease, expired)
	}
}

// A server that restarts after a kill has its presence again: the end of the old lease must not
// remove the key of the new lease.
func TestEndOfAnOldPresenceKeepsTheNewOne(t *testing.T) {
	s, ctx := open(t), context.Background()
	killed, back := s.Presence("servers", "a", long), s.Presence("servers", "a", long)
	for _, p := range []*Presence{killed, back} {
		if err := p.Renew(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := killed.End(ctx); err != nil {
		t.Fatal(err)
	}
	present(t, back, "a")
}
