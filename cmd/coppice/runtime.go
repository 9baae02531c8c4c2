package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/coppice-dev/coppice/internal/system/assets/role"
)

const (
	// diskWaiters is the number of goroutines of a control plane under load that are in a system
	// call waiting for the disk: one flushes etcd's log, one writes the audit log.
	diskWaiters = 2

	// leastPercent is the least that GOGC is set to: a heap that is large because there are many
	// objects must not be collected all the time.
	leastPercent = 60
	// startPercent is GOGC in the first tuneInterval of the API server of a test suite, most of whose
	// memory is measured then. When in a cycle of collections it is ready is chance; the smaller the
	// cycles are, the less that matters.
	startPercent = 40
	// frugalPercent is GOGC for a command that reads a whole cluster, once: nearly all that it allocates is
	// garbage at once, and a laptop's memory is worth more than a fifth of its processor time.
	frugalPercent = 30
	// maxGarbage is the amount of garbage that may accumulate in a small heap before a collection, in
	// bytes, and garbageShare the divisor of the memory limit that bounds it further. A heap that
	// grows takes the place of garbage until leastPercent is reached.
	maxGarbage   = 512 << 20
	garbageShare = 8
	// leastMemory is the most memory that the process takes before it is collected more often than GOGC
	// has it, in bytes; a live heap of which memoryParts exceed that takes so many of its liveParts.
	leastMemory            = 690_000_000
	memoryParts, liveParts = 5, 3
	// minLive is the smallest live heap that is assumed, in bytes. A starting process has less, but
	// it grows with each collection.
	minLive = 64 << 20

	// tuneInterval is the interval at which the heap is examined, and calmBytes the most that a
	// control plane allocates in that time when it is not under load. An idle one allocates a few MB.
	tuneInterval = time.Second
	calmBytes    = 16 << 20
	// calmTicks is how many intervals without load it takes until memory is returned, and
	// returnBytes how much must have been allocated since it was returned last.
	calmTicks   = 5
	returnBytes = 128 << 20
	// lateTicks is how many it takes until memory is returned once more. By then the store has
	// dropped the past of the load, which takes it 15 to 20 s.
	lateTicks = 25
)

// The runtime metrics that are read, in bytes: the live heap after the last collection, and the
// total of all allocations.
const (
	liveMetric      = "/gc/heap/live:bytes"
	allocatedMetric = "/gc/heap/allocs:bytes"
)

// keepFrugal keeps the heap of a command that reads a cluster small. GOGC in the environment takes precedence.
func keepFrugal() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(frugalPercent)
	}
}

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
	h := &heap{
		maxGarbage: min(maxGarbage, uint64(limit)/garbageShare), fixed: os.Getenv("GOGC") != "",
		most: debug.SetMemoryLimit(-1), fixedLimit: os.Getenv("GOMEMLIMIT") != "",
	}
	h.adapt()
	go h.keepAdapting()
}

// keepSmall has a process that stands for one of Kubernetes' (package role) collect garbage often, and
// return what its start needed: suites of tests run many of them at a time, under little load.
func keepSmall(r role.Role) {
	h := &heap{fixed: os.Getenv("GOGC") != ""}
	if r == role.APIServer {
		// The quarter of its memory that is garbage when it is ready costs about a tenth of the CPU time of its
		// start. Of etcd there is hardly any; its start has the runtime's defaults.
		h.setPercent(startPercent)
	}
	go h.keepAdapting()
}

// heap adapts GOGC to the live heap, so that a fixed amount of garbage may accumulate rather than
// as much as is live: the live heap of a control plane is so small that, with GOGC=100, the
// collector ran every 300 requests and took a fifth of the CPU time. An idle control plane produces
// hardly any garbage and stays small. Neither GOGC nor GOMEMLIMIT alone can express that: a high
// GOGC would multiply a heap that is large because there are many objects, and with a low
// GOMEMLIMIT such a heap would be collected all the time.
//
// A limit on the memory as a whole, in proportion to the live heap, has the runtime return in time
// what GOGC takes no account of: pages that are free, a tenth of the heap, and the room in pages that
// are not.
//
// Once a load is over, and the start is one, it returns the memory that only the load needed to the
// operating system. The runtime would wait for a collection that nothing causes any more, and then
// do it over minutes.
type heap struct {
	maxGarbage uint64
	fixed      bool  // GOGC is set by the environment
	most       int64 // the memory limit
	fixedLimit bool  // it is set by the environment

	percent   int
	limit     int64
	allocated uint64 // when last examined
	returned  uint64 // what was allocated when memory was returned last
	calm      int    // intervals without load
	late      bool   // memory is to be returned once more
}

func (h *heap) keepAdapting() {
	for range time.Tick(tuneInterval) {
		h.adapt()
	}
}

func (h *heap) adapt() {
	live := readMetric(liveMetric)
	percent, release := h.look(live, readMetric(allocatedMetric))
	h.setPercent(percent)
	if limit := h.limitFor(live); limit != h.limit && !h.fixedLimit {
		debug.SetMemoryLimit(limit)
		h.limit = limit
	}
	if release {
		debug.FreeOSMemory()
	}
}

func (h *heap) setPercent(percent int) {
	if percent != h.percent && !h.fixed {
		debug.SetGCPercent(percent)
		h.percent = percent
	}
}

// look returns the new value of GOGC, and whether to return memory now: not under load, which would
// need it again at once, and not if there was none.
func (h *heap) look(live, allocated uint64) (percent int, release bool) {
	if h.allocated > 0 && allocated-h.allocated <= calmBytes {
		h.calm++
	} else {
		h.calm = 0
	}
	h.allocated = allocated
	switch {
	case h.calm >= calmTicks && (h.returned == 0 || allocated-h.returned >= returnBytes):
		release, h.late = true, true
	case h.calm >= lateTicks && h.late:
		release, h.late = true, false
	}
	if release {
		h.returned = allocated
	}
	return h.percentFor(live), release
}

// percentFor returns the GOGC of a live heap.
func (h *heap) percentFor(live uint64) int {
	live = max(live, minLive)
	whole := h.maxGarbage + minLive
	if live >= whole {
		return leastPercent
	}
	return max(leastPercent, int((whole-live)*100/live))
}

// limitFor returns the memory limit of a live heap.
func (h *heap) limitFor(live uint64) int64 {
	return min(h.most, max(leastMemory, int64(live/liveParts*memoryParts)))
}

func readMetric(name string) uint64 {
	samples := []metrics.Sample{{Name: name}}
	metrics.Read(samples)
	return samples[0].Value.Uint64()
}
