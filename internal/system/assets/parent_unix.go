//go:build unix

package assets

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// watchParent returns a function that returns when the parent has ended: another process then adopts this one, so
// the parent changes. PR_SET_PDEATHSIG of Linux is no alternative: its signal is also sent when only the
// thread of the parent ends that started this process.
func watchParent() func() {
	parent := os.Getppid()
	if isAdopted(parent) {
		return func() {}
	}
	return func() {
		ticker := time.NewTicker(parentInterval)
		defer ticker.Stop()
		for os.Getppid() == parent {
			<-ticker.C
		}
	}
}

// isAdopted reports whether the parent of this process ended before watchParent was called. There are two signs:
// a child is in the session of its parent, unless it has started its own; and process 1 adopts, but seldom
// starts a process in a directory other than its own. Both are absent when the adopting process is in the
// same session and in the same directory: then this process outlives its parent.
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

// isElsewhere reports whether a process has another working directory than this one. It needs /proc;
// without it, the result is false.
func isElsewhere(process int) bool {
	own, err := os.Readlink("/proc/self/cwd")
	if err != nil {
		return false
	}
	theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", process))
	return err == nil && theirs != own
}
