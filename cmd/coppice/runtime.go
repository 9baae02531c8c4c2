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
	// diskWaiters is how many goroutines of a control plane under load are in a system call
	// that waits for the disk: one flushes the log of etcd, one writes the audit log.
	diskWaiters = 2

	// defaultPercent is GOGC's default.
	defaultPercent = 100
	// maxGarbage is how much garbage may gather in the heap before it is collected, in bytes,
	// and garbageShare how small a part of the memory limit that may be.
	maxGarbage   = 512 << 20
	garbageShare = 8
	// minLive is the smallest heap in use that is reckoned with, in bytes. A starting process
	// has less, but what there is of it grows with each collection.
	minLive = 64 << 20

	// tuneInterval is how often the heap is looked at, and settledBytes how much a control
	// plane allocates in that time, at most, once its start is over. One that is idle
	// allocates a few MB.
	tuneInterval = time.Second
	settledBytes = 16 << 20
)

// The metrics of the runtime that are looked at, in bytes: what the last collection found in
// use, and what was ever allocated.
const (
	liveMetric      = "/gc/heap/live:bytes"
	allocatedMetric = "/gc/heap/allocs:bytes"
)

// tuneRuntime sets GOMAXPROCS, GOMEMLIMIT and GOGC for a control plane that has the process
// for itself, and goes on to adapt GOGC. Those that the environment sets are left alone.
// BenchmarkRuntime prints what each buys.
func tuneRuntime() {
	if os.Getenv("GOMAXPROCS") == "" {
		// To the scheduler a goroutine in a system call is one that runs, until its monitor
		// notices. On two processors, half of the control plane stands still for that long
		// each time etcd flushes its log. The price: a CPU limit that changes later is not
		// followed any more.
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + diskWaiters)
	}
	limit, err := memlimit.Set(memlimit.WithProvider(memlimit.ApplyFallback(memlimit.FromCgroup, memlimit.FromSystem)))
	if err != nil {
		limit = maxGarbage * garbageShare // as good as any: no limit is known, and none was set
	}
	h := &heap{maxGarbage: min(maxGarbage, uint64(limit)/garbageShare), fixed: os.Getenv("GOGC") != ""}
	h.adapt()
	go func() {
		for range time.Tick(tuneInterval) {
			h.adapt()
		}
	}()
}

// heap adapts GOGC to what is in use, so that a fixed amount of garbage may gather rather
// than as much as is in use: a control plane has so little in use that, with GOGC=100, the
// collector ran every 300 requests and took a fifth of the processor time. An idle one makes
// hardly any garbage and stays small. Neither GOGC nor GOMEMLIMIT alone can say that: a high
// GOGC would multiply a heap that is large because there are many objects, and a low
// GOMEMLIMIT would have such a heap collected all the time.
//
// Once the start is over, it returns the memory that only the start needed to the operating
// system, which the runtime would do over minutes.
type heap struct {
	maxGarbage uint64
	fixed      bool // GOGC is set by the environment

	percent   int
	allocated uint64 // at the last look
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

// look returns what GOGC is to be, and whether this is the time, of which there is one, to
// return memory: not under load, which would need it again at once.
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
