//go:build unix

package parent

import (
	"fmt"
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

// isAdopted reports whether this process has lost its parent before it could look. There are two signs
// of it: a child is in the session of its parent, unless it has begun one of its own; and process 1
// adopts, but seldom starts a process in another directory than its own. Both are absent when what
// adopts is in the same session and in the same directory: then this process outlives its parent.
func isAdopted(parent int) bool {
	own, err := unix.Getsid(0)
	if err != nil || own == os.Getpid() {
		return false
	}
	if theirs, err := unix.Getsid(parent); err == nil && theirs != own {
		return true
	}
	return parent == 1 && isElsewhere(parent)
}

// isElsewhere reports whether a process is in another directory than this one, as far as the system
// tells: only that with /proc does.
func isElsewhere(process int) bool {
	own, err := os.Readlink("/proc/self/cwd")
	if err != nil {
		return false
	}
	theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", process))
	return err == nil && theirs != own
}
