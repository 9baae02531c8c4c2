package system

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"
)

const (
	// settleTime is how often a control plane that has started is asked whether it has
	// done what there is to do at a start, and settleBytes how much it allocates between,
	// at most, when it has. One that is idle allocates a few MB; load right after a start
	// is no time to give back memory that is needed again at once.
	settleTime  = 2 * time.Second
	settleBytes = 32 << 20

	// usualPercent is the heap's growth between two collections where nothing else is said.
	usualPercent = 100

	// mostRoom is how much garbage may gather in the heap before it is collected, in
	// bytes, and roomShare the part of the memory that it may be where there is little:
	// one in so many.
	mostRoom  = 512 << 20
	roomShare = 8

	// liveBytes is the metric of what the last collection found in use, allocatedBytes
	// that of all that was ever allocated.
	liveBytes      = "/gc/heap/live:bytes"
	allocatedBytes = "/gc/heap/allocs:bytes"
)

// tend lets the heap have room until ctx ends, and returns to the operating system, once
// the control plane has settled, what only the start needed. It looks at each tick whether
// it has.
//
// Left to itself a heap grows to twice what is in use, and an idle control plane has so
// little in use that under load a collection, which looks at all of it, came every 300
// requests and took a fifth of the processor time. An idle one makes no garbage to
// speak of, and the runtime collects it every two minutes, so it stays small.
func tend(ctx context.Context, ticks <-chan time.Time) {
	start := settling{heapMetric(allocatedBytes)}
	collected, room := afterEachCollection(ctx), roomIn(memoryLimit("/"))
	decided := os.Getenv("GOGC") != "" // by somebody else
	if !decided {
		defer debug.SetGCPercent(usualPercent)
	}
	for {
		if !decided {
			debug.SetGCPercent(percentFor(heapMetric(liveBytes), room))
		}
		select {
		case <-collected:
		case <-ticks:
			if !start.hasEnded(heapMetric(allocatedBytes)) {
				continue
			}
			ticks = nil
			debug.FreeOSMemory()
			_ = unmapBinary() // else it has more memory than it needs, which is no matter
		case <-ctx.Done():
			return
		}
	}
}

// settling is what is known of a control plane that has started: how much it had ever
// allocated when it was looked at last, in bytes.
type settling struct{ allocated uint64 }

// hasEnded takes what has ever been allocated by now.
func (s *settling) hasEnded(allocated uint64) bool {
	since := allocated - s.allocated
	s.allocated = allocated
	return since <= settleBytes
}

// percentFor is the growth, in percent of what is in use, that leaves room: the usual
// one where so much is in use that this is more.
func percentFor(live, room uint64) int {
	return max(usualPercent, int(room*100/max(live, 1<<20)))
}

// roomIn is the room for a heap in that much memory, in bytes.
func roomIn(memory uint64) uint64 { return min(mostRoom, memory/roomShare) }

// memoryLimit is how much memory this process may have, in bytes: what the machine has,
// or, if less, what its container or service was given (cgroup v2). What cannot be read
// sets no limit. The files are looked for below root.
func memoryLimit(root string) uint64 {
	limit := uint64(math.MaxUint64)
	if kib, ok := fieldOf(filepath.Join(root, "proc/meminfo"), "MemTotal:"); ok {
		limit = min(limit, kib<<10)
	}
	membership, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return limit
	}
	for line := range strings.Lines(string(membership)) {
		path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok {
			continue
		}
		if bytes, ok := fieldOf(filepath.Join(root, "sys/fs/cgroup", path, "memory.max"), ""); ok {
			limit = min(limit, bytes)
		}
	}
	return limit
}

// fieldOf is the number that stands after the name in the first line that begins with it.
func fieldOf(path, name string) (uint64, bool) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(data)) {
		rest, ok := strings.CutPrefix(line, name)
		if fields := strings.Fields(rest); ok && len(fields) > 0 {
			n, err := strconv.ParseUint(fields[0], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// heapMetric is the present value of a metric of the runtime, in bytes.
func heapMetric(name string) uint64 {
	samples := []metrics.Sample{{Name: name}}
	metrics.Read(samples)
	return samples[0].Value.Uint64()
}

// afterEachCollection returns a channel that has a token when a collection has ended.
func afterEachCollection(ctx context.Context) <-chan struct{} {
	collected := make(chan struct{}, 1)
	// An object that nobody holds tells of the collection that finds it, and of the next
	// one with another. It has a pointer: without, it would share its place with others.
	type garbage struct{ _ *byte }
	var tell func(struct{})
	tell = func(struct{}) {
		select {
		case collected <- struct{}{}:
		default:
		}
		if ctx.Err() == nil {
			runtime.AddCleanup(new(garbage), tell, struct{}{})
		}
	}
	runtime.AddCleanup(new(garbage), tell, struct{}{})
	return collected
}
