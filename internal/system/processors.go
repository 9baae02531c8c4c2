package system

import (
	"os"
	"runtime"
)

// diskWaits is how many of the goroutines that count as running wait for the disk
// instead, under load: the log of the store is being flushed, and a line of the audit
// log written.
const diskWaits = 2

// UseProcessors lets as many more goroutines run at a time than there are processors as
// wait for the disk. To the runtime a goroutine in a system call is one that runs, until
// some time later its monitor takes notice; with two processors, half of the control
// plane stands still for that long each time the store flushes its log. Cascades are a
// quarter faster with it; with the store in memory, foreground ones are not, and
// background ones are by a fifth, for which we have no explanation. It is for commands,
// which own their process, and leaves a GOMAXPROCS of the environment alone. A limit of
// the container that is changed later is not followed any more.
func UseProcessors() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + diskWaits)
	}
}
