package controller

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
)

// If all requests would be refused, only one is sent; later refusals affect at most one batch.
func TestSlowStartBatch(t *testing.T) {
	refused := errors.New("refused")
	for name, c := range map[string]struct {
		n, refuse int // refuse is the first call that fails; -1 for none
		calls     int32
	}{
		"none":               {n: 0, refuse: -1, calls: 0},
		"all":                {n: 100, refuse: -1, calls: 100},
		"the first":          {n: 100, refuse: 0, calls: 1},
		"the second":         {n: 100, refuse: 1, calls: 3},
		"in the fourth step": {n: 100, refuse: 9, calls: 15},
		"the last":           {n: 100, refuse: 99, calls: 100},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int32
			err := SlowStartBatch(t.Context(), c.n, func(_ context.Context, i int) error {
				calls.Add(1)
				if i == c.refuse {
					return refused
				}
				return nil
			})
			if (c.refuse >= 0) != errors.Is(err, refused) {
				t.Errorf("%v", err)
			}
			if got := calls.Load(); got != c.calls {
				t.Errorf("%d calls, want %d", got, c.calls)
			}
		})
	}
}
