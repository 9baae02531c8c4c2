package controller

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// concurrency is the maximum number of requests in flight for one owner.
const concurrency = 16

// SlowStartBatch is for creations. It calls do for 0 to n-1: first once, then in batches that double
// in size as long as no call fails. So it sends only a few requests if all would be refused, for
// example because of a quota. It returns one of the errors. A panic is one of them.
func SlowStartBatch(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	for begin, size := 0, 1; begin < n; begin, size = begin+size, 2*size {
		size = min(size, n-begin)
		var calls errgroup.Group
		calls.SetLimit(concurrency)
		for i := begin; i < begin+size; i++ {
			calls.Go(func() error { return guard(func() error { return do(ctx, i) }) })
		}
		if err := calls.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// AttemptAll is for deletions and for changes of several objects. It calls do for each of them, also after an error: an
// object that a policy protects holds back no other one. But it starts no call after a request without an answer: the others
// may have to wait as long for theirs. It returns the error of the first object in the list; errors that a stale cache
// explains come last. A panic about one object is its error.
func AttemptAll[T any](all []T, do func(one T) error) error {
	failed := make([]error, len(all))
	var unanswered atomic.Bool
	var calls errgroup.Group
	calls.SetLimit(concurrency)
	for i, one := range all {
		calls.Go(func() error {
			if unanswered.Load() {
				return nil
			}
			failed[i] = guard(func() error { return do(one) })
			if failed[i] != nil && isUnanswered(failed[i]) && !isPanic(failed[i]) {
				unanswered.Store(true)
			}
			return nil
		})
	}
	_ = calls.Wait() // the errors are in failed
	var stale error
	for _, err := range failed {
		switch {
		case err != nil && !isStaleCache(err):
			return err
		case stale == nil:
			stale = err
		}
	}
	return stale
}
