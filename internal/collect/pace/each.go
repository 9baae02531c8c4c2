package pace

import (
	"sync"
	"sync/atomic"
)

// Each calls f for all, at most limit at the same time, and returns the error of one of the calls that failed.
// It calls f for all even after an error. With a limit of 1 it starts no goroutine, calls in order, and
// returns the first error.
func Each[T any](limit int, all []T, f func(one T) error) error {
	var first error
	if limit == 1 {
		for _, one := range all {
			if err := f(one); err != nil && first == nil {
				first = err
			}
		}
		return first
	}
	// A goroutine makes many of the calls: the stack of a new one would have to grow for each call.
	var (
		callers sync.WaitGroup
		next    atomic.Int64
		once    sync.Once
	)
	for range min(limit, len(all)) {
		callers.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(all)); i = next.Add(1) - 1 {
				if err := f(all[i]); err != nil {
					once.Do(func() { first = err })
				}
			}
		})
	}
	callers.Wait()
	return first
}
