// Package parent notices that the process which started this one has ended, in whatever way. A test
// that is killed cannot stop what it has started.
package parent

import "time"

// interval is how often the parent is looked for where the system does not tell.
const interval = 100 * time.Millisecond

// Ended returns a channel that is closed when the parent has ended. Call it early: if the parent ends
// before, that may go unnoticed.
func Ended() <-chan struct{} {
	ended := make(chan struct{})
	wait := watch()
	go func() {
		wait()
		close(ended)
	}()
	return ended
}
