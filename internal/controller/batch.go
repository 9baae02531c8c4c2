package controller

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// together is how many requests for one owner are on their way at a time.
const together = 16

// Batch calls do for 0 to n-1: for one first, then for twice as many at a time as long
// as none fails. What is refused is refused to few, then, as pods are that a quota does
// not admit. It returns one of the errors.
func Batch(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	for begin, size := 0, 1; begin < n; begin, size = begin+size, 2*size {
		size = min(size, n-begin)
		var calls errgroup.Group
		calls.SetLimit(together)
		for i := begin; i < begin+size; i++ {
			calls.Go(func() error { return do(ctx, i) })
		}
		if err := calls.Wait(); err != nil {
			return err
		}
	}
	return nil
}
