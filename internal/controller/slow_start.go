package controller

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// concurrency is the maximum number of requests in flight for one owner.
const concurrency = 16

// SlowStartBatch calls do for 0 to n-1: first once, then in batches that double in size as
// long as no call fails. So it sends only a few requests if all would be refused, for
// example because of a quota. It returns one of the errors.
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
