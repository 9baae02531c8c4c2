package pace

import "sync"

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
	var (
		calls sync.WaitGroup
		slots = make(chan struct{}, limit)
		once  sync.Once
	)
	for _, one := range all {
		slots <- struct{}{}
		calls.Go(func() {
			defer func() { <-slots }()
			if err := f(one); err != nil {
				once.Do(func() { first = err })
			}
		})
	}
	calls.Wait()
	return first
}
