// Package parent detects that the parent process has ended, for whatever reason. A killed test cannot stop
// the processes that it has started.
package parent

import "time"

// interval is the polling interval for the parent on systems without a notification.
const interval = 100 * time.Millisecond

// Ended returns a channel that is closed when the parent has ended. Call it early: it may miss an earlier
// end of the parent.
func Ended() <-chan struct{} {
	ended := make(chan struct{})
	wait := watch()
	go func() {
		wait()
		close(ended)
	}()
	return ended
}
