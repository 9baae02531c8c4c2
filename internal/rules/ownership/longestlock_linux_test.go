package ownership_test

import (
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// BenchmarkLongestLock reports, for each question, the most processor time of one hold of the lock of a graph of a million
// objects, all of which are part of the answer.
func BenchmarkLongestLock(b *testing.B) {
	g := large(1_000_000)
	for _, q := range questions() {
		b.Run(q.name, func(b *testing.B) { reportLongest(b, g, q) })
	}
}

// BenchmarkLongestLockOfARemoval reports the same for the removal of the owner of a million dependents.
func BenchmarkLongestLockOfARemoval(b *testing.B) {
	g := large(0)
	g.InPieces(ownership.Piece)
	for i := range 1_000_000 {
		g.Observe(object(uidOf(i), 1, "crowded"))
	}
	version := 1
	reportLongest(b, g, question{"", func(view func(read func(g *ownership.Graph))) {
		view(func(g *ownership.Graph) {
			g.Observe(object("crowded", version))
			g.Forget("crowded", strconv.Itoa(version+1))
		})
		version += 2
		for more := true; more; {
			view(func(g *ownership.Graph) { _, more = g.Rest() })
		}
	}})
}

// reportLongest reports the most processor time for which the graph is locked for a question: the time that passes depends
// on what else the machine does.
func reportLongest(b *testing.B, g *ownership.Graph, q question) {
	b.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var longest time.Duration
	for b.Loop() {
		q.ask(func(read func(g *ownership.Graph)) {
			began := threadTime(b)
			read(g)
			longest = max(longest, threadTime(b)-began)
		})
	}
	b.ReportMetric(float64(longest.Microseconds())/1000, "ms-locked")
}

// threadTime returns the processor time of this thread.
func threadTime(b *testing.B) time.Duration {
	b.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		b.Skip(err)
	}
	return time.Duration(now.Nano())
}
