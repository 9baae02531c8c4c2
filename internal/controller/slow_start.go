package controller

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// concurrency is how many requests for one owner are in flight at a time.
const concurrency = 16

// SlowStartBatch calls do for 0 to n-1: for one first, then for twice as many at a time as
// long as none fails. So few requests are refused where all would be, as those for pods
// that a quota does not admit. It returns one of the errors.
func SlowStartBatch(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	for begin, size := 0, 1; begin < n; begin, size = begin+size, 2*size {
		size = min(size, n-begin)
		var calls errgroup.Group
		calls.SetLimit(concurrency)
		for i := begin; i < begin+size; i++ {
			calls.Go(func() error { return do(ctx, i) })
		}
		if err := calls.Wait(); err != nil {
			return err
		}
	}
	return nil
}
