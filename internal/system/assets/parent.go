package assets

import "time"

// parentInterval is the polling interval for the parent process on systems without a notification.
const parentInterval = 100 * time.Millisecond

// ParentEnded returns a channel that is closed when the parent process has ended, for whatever reason: a
// killed test cannot stop the processes that it has started. Call it early: it may miss an earlier end of
// the parent.
func ParentEnded() <-chan struct{} {
	ended := make(chan struct{})
	wait := watchParent()
	go func() {
		wait()
		close(ended)
	}()
	return ended
}
