package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

const (
	// diskWaiters is the number of goroutines of a control plane under load that are in a system
	// call waiting for the disk: one flushes etcd's log, one writes the audit log.
	diskWaiters = 2

	// defaultPercent is GOGC's default.
	defaultPercent = 100
	// maxGarbage is the amount of garbage that may accumulate in the heap before a collection, in
	// bytes, and garbageShare the divisor of the memory limit that bounds it further.
	maxGarbage   = 512 << 20
	garbageShare = 8
	// minLive is the smallest live heap that is assumed, in bytes. A starting process has less, but
	// it grows with each collection.
	minLive = 64 << 20

	// tuneInterval is the interval at which the heap is examined, and settledBytes the most that a
	// control plane allocates in that time once its start is over. An idle one allocates a few MB.
	tuneInterval = time.Second
	settledBytes = 16 << 20
)

// The runtime metrics that are read, in bytes: the live heap after the last collection, and the
// total of all allocations.
const (
	liveMetric      = "/gc/heap/live:bytes"
	allocatedMetric = "/gc/heap/allocs:bytes"
)

// tuneRuntime sets GOMAXPROCS, GOMEMLIMIT and GOGC for a control plane that has the process to
// itself, and keeps adapting GOGC. Settings in the environment take precedence. BenchmarkRuntime
// prints the effect of each.
func tuneRuntime() {
	if os.Getenv("GOMAXPROCS") == "" {
		// To the scheduler a goroutine in a system call is running until its monitor notices. On
		// two processors, half of the control plane stands still for that long each time etcd
		// flushes its log. The cost: later changes of the CPU limit are no longer followed.
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + diskWaiters)
	}
	limit, err := memlimit.Set(memlimit.WithProvider(memlimit.ApplyFallback(memlimit.FromCgroup, memlimit.FromSystem)))
	if err != nil {
		limit = maxGarbage * garbageShare // arbitrary: no limit is known, and none was set
	}
	h := &heap{maxGarbage: min(maxGarbage, uint64(limit)/garbageShare), fixed: os.Getenv("GOGC") != ""}
	h.adapt()
	go func() {
		for range time.Tick(tuneInterval) {
			h.adapt()
		}
	}()
}

// heap adapts GOGC to the live heap, so that a fixed amount of garbage may accumulate rather than
// as much as is live: the live heap of a control plane is so small that, with GOGC=100, the
// collector ran every 300 requests and took a fifth of the CPU time. An idle control plane produces
// hardly any garbage and stays small. Neither GOGC nor GOMEMLIMIT alone can express that: a high
// GOGC would multiply a heap that is large because there are many objects, and with a low
// GOMEMLIMIT such a heap would be collected all the time.
//
// Once the start is over, it returns the memory that only the start needed to the operating system,
// which the runtime would do over minutes.
type heap struct {
	maxGarbage uint64
	fixed      bool // GOGC is set by the environment

	percent   int
	allocated uint64 // when last examined
	settled   bool
}

func (h *heap) adapt() {
	percent, release := h.look(readMetric(liveMetric), readMetric(allocatedMetric))
	if percent != h.percent && !h.fixed {
		debug.SetGCPercent(percent)
		h.percent = percent
	}
	if release {
		debug.FreeOSMemory()
	}
}

// look returns the new value of GOGC, and whether to return memory now, which happens once and not
// under load, which would need it again at once.
func (h *heap) look(live, allocated uint64) (percent int, release bool) {
	release = !h.settled && h.allocated > 0 && allocated-h.allocated <= settledBytes
	h.settled = h.settled || release
	h.allocated = allocated
	return max(defaultPercent, int(h.maxGarbage*100/max(live, minLive))), release
}

func readMetric(name string) uint64 {
	samples := []metrics.Sample{{Name: name}}
	metrics.Read(samples)
	return samples[0].Value.Uint64()
}
