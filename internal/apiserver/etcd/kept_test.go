package etcd

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// Values are kept by name, in groups, until their time is over.
func TestValuesAreKeptForATime(t *testing.T) {
	t.Parallel()
	for name, newStore := range stores() {
		t.Run(name, func(t *testing.T) {
			s, ctx := newStore(t), context.Background()
			kept, other := s.Kept("permits"), s.Kept("permits-of-others")
			for n, ttl := range map[string]time.Duration{"b": long, "a": long, "short": time.Second} {
				if err := kept.Put(ctx, n, []byte("value of "+n), ttl); err != nil {
					t.Fatal(err)
				}
			}
			if value, err := kept.Get(ctx, "a"); err != nil || string(value) != "value of a" {
				t.Errorf("%q, %v", value, err)
			}
			eventually.Agrees(t, func() string {
				if names, err := kept.Names(ctx); err != nil || !slices.Equal(names, []string{"a", "b"}) {
					return "kept are " + slices.Concat(names, []string{"and no more"})[0]
				}
				return ""
			})
			if value, err := kept.Get(ctx, "short"); err != nil || value != nil {
				t.Errorf("after its time: %q, %v", value, err)
			}
			if names, err := other.Names(ctx); err != nil || len(names) > 0 {
				t.Errorf("another group has %q, %v", names, err)
			}
		})
	}
}
