// Package stack gives goroutines room. A request of the API server is served by several
// goroutines, each of which starts with a small stack, and a stack that is too small is
// copied into one of twice the size: cheap at the beginning, dear in the depth of a
// request, where frame after frame has its pointers adjusted. A tenth of the server's
// time for a small write went there, and a fortieth goes there when stacks are grown first.
package stack

// room is as much as serving a request takes, in bytes. With what the goroutine has in
// use already, its stack grows to 32 KiB.
const room = 24 << 10

// Grow has the calling goroutine's stack grown at once. What is not used of it is taken
// back by the garbage collection, as of any stack.
func Grow() { reserve(0) }

// reserve has a frame that takes all the room, and so the stack is grown when it is
// called. For no bytes nothing of the frame is touched: there is no reason to clear it.
//
//go:noinline
func reserve(bytes int) byte {
	if bytes == 0 {
		return 0
	}
	var unused [room]byte
	return unused[bytes%room]
}
