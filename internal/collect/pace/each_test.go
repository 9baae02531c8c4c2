package pace

import (
	"errors"
	"sync/atomic"
	"testing"
)

// Each calls for all, at most limit at once, and returns an error that one of the calls returned.
func TestEachCallsForAllAtMostLimitAtOnce(t *testing.T) {
	broken := errors.New("broken")
	for _, limit := range []int{1, 3, 100} {
		var calls, now, most atomic.Int64
		err := Each(limit, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, func(one int) error {
			n := now.Add(1)
			defer now.Add(-1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			calls.Add(1)
			if one%4 == 1 {
				return broken
			}
			return nil
		})
		if !errors.Is(err, broken) || calls.Load() != 10 || most.Load() > int64(limit) {
			t.Errorf("limit %d: %d calls, %d at once, %v", limit, calls.Load(), most.Load(), err)
		}
		if err := Each(limit, []int{1}, func(int) error { return nil }); err != nil {
			t.Errorf("limit %d: %v", limit, err)
		}
	}
}
