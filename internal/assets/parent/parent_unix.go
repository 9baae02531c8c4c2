//go:build unix

package parent

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// watch returns a function that returns when the parent has ended: then another process adopts this
// one, so that the parent is another one. PR_SET_PDEATHSIG of Linux would be sent when the thread of
// the parent ends that started this process, too.
func watch() func() {
	parent := os.Getppid()
	if isAdopted(parent) {
		return func() {}
	}
	return func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for os.Getppid() == parent {
			<-ticker.C
		}
	}
}

// isAdopted reports whether this process has lost its parent before it could look: a child is in the
// session of its parent, unless it has begun one of its own.
func isAdopted(parent int) bool {
	own, err := unix.Getsid(0)
	if err != nil || own == os.Getpid() {
		return false
	}
	theirs, err := unix.Getsid(parent)
	return err == nil && theirs != own
}
