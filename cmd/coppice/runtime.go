package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	semver "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-base/version"

	"github.com/coppice-dev/coppice/internal/system/assets/role"
)

const (
	// diskWaiters is the number of goroutines of a control plane under load that wait for the disk
	// in a system call: one flushes etcd's log, one writes the audit log.
	diskWaiters = 2

	// leastPercent is the lower bound of GOGC: a heap that is large because there are many objects
	// must not be collected all the time.
	leastPercent = 60
	// collectorPercent is that bound for coppice collect, whose heap of a large cluster is the ownership graph: it has
	// hardly any pointers, so that a collection costs little. collectorGarbage is its maxGarbage.
	collectorPercent = 20
	collectorGarbage = 64 << 20
	// startPercent is GOGC in the first tuneInterval of the API server of a test suite, when its memory
	// is usually measured. The server becomes ready at a random point of a garbage collection cycle;
	// with smaller cycles the measured memory varies less.
	startPercent = 40
	// frugalPercent is GOGC for a command that reads a whole cluster once: nearly all its allocations become
	// garbage at once, and a laptop's memory is worth more than a fifth of its processor time.
	frugalPercent = 30
	// maxGarbage bounds the garbage in a small heap before a collection, in bytes; the memory limit
	// divided by garbageShare bounds it further. As the live heap grows, the bound of garbage shrinks,
	// until leastPercent is reached.
	maxGarbage   = 512 << 20
	garbageShare = 8
	// leastMemory is the least memory limit of the process, in bytes. At the limit, collections are more
	// frequent than with GOGC alone. A large live heap has the limit live/liveParts*memoryParts.
	leastMemory            = 690_000_000
	memoryParts, liveParts = 5, 3
	// minLive is the smallest assumed live heap, in bytes. A starting process has less, but its heap
	// grows with each collection.
	minLive = 64 << 20

	// tuneInterval is the interval at which the heap is examined, and calmBytes bounds the allocations
	// of a control plane without load in this time. An idle one allocates a few MB.
	tuneInterval = time.Second
	calmBytes    = 16 << 20
	// calmTicks is the number of intervals without load after which memory is returned, and
	// returnBytes the least allocations since the last return.
	calmTicks   = 5
	returnBytes = 128 << 20
	// lateTicks is the number of intervals without load after which memory is returned once more. By
	// then the store has dropped the old revisions of the load, which takes about 15 s.
	lateTicks = 25
)

// The used runtime metrics, in bytes: the live heap after the last collection, and the total of
// all allocations.
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

// tuneRuntime sets GOMAXPROCS, GOMEMLIMIT and GOGC for a process that is only a control plane,
// and keeps adapting GOGC. Settings in the environment take precedence. BenchmarkRuntime prints
// the effect of each setting.
func tuneRuntime() {
	if os.Getenv("GOMAXPROCS") == "" {
		// For the scheduler, a goroutine in a system call is running until the runtime's monitor
		// notices. On two processors, half of the control plane would stand still until then, each
		// time etcd flushes its log. The cost: the runtime ignores later changes of the CPU limit.
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + diskWaiters)
	}
	limit, err := memlimit.Set(memlimit.WithProvider(memlimit.ApplyFallback(memlimit.FromCgroup, memlimit.FromSystem)))
	if err != nil {
		limit = maxGarbage * garbageShare // arbitrary: no limit is known, and none was set
	}
	h := &heap{
		maxGarbage: min(maxGarbage, uint64(limit)/garbageShare), least: leastPercent, fixed: os.Getenv("GOGC") != "",
		most: debug.SetMemoryLimit(-1), fixedLimit: os.Getenv("GOMEMLIMIT") != "",
	}
	h.adapt()
	go h.keepAdapting()
}

// keepSmall makes a process that replaces a program of Kubernetes (package role) collect garbage often,
// and return the memory of its start: test suites run many such processes at a time, under little load.
func keepSmall(r role.Role) {
	h := &heap{least: leastPercent, fixed: os.Getenv("GOGC") != ""}
	if r == role.APIServer {
		// When it is ready, a quarter of its memory would be garbage. Avoiding that costs about a tenth of the
		// CPU time of its start. etcd has hardly any garbage then, so it starts with the runtime's defaults.
		h.setPercent(startPercent)
	}
	go h.keepAdapting()
}

// keepCompact keeps adapting GOGC and GOMEMLIMIT of a process that is only a collector.
func keepCompact() {
	h := &heap{
		maxGarbage: collectorGarbage, least: collectorPercent, fixed: os.Getenv("GOGC") != "",
		most: debug.SetMemoryLimit(-1), fixedLimit: os.Getenv("GOMEMLIMIT") != "",
	}
	h.adapt()
	go h.keepAdapting()
}

// heap adapts GOGC to the live heap, so that a fixed amount of garbage may accumulate, and not an
// amount in proportion to the live heap. A control plane's live heap is so small that, with
// GOGC=100, the collector ran every 300 requests and took a fifth of the CPU time. An idle control
// plane produces hardly any garbage and stays small. Neither GOGC nor GOMEMLIMIT alone is
// sufficient: a high GOGC would multiply a heap that is large because there are many objects, and
// with a low GOMEMLIMIT such a heap would be collected all the time.
//
// A limit on the whole memory, in proportion to the live heap, makes the runtime also return the
// memory that GOGC ignores: free pages (a tenth of the heap), and the free space in used pages.
//
// After a load, such as the start, it returns the memory that only the load needed to the operating
// system. The runtime would wait for the next collection, which may not come any more, and would
// then return the memory over minutes.
type heap struct {
	maxGarbage uint64
	least      int   // the lower bound of GOGC
	fixed      bool  // GOGC is set by the environment
	most       int64 // the memory limit
	fixedLimit bool  // the memory limit is set by the environment

	percent   int
	limit     int64
	allocated uint64 // total allocations at the last examination
	returned  uint64 // total allocations at the last return of memory
	calm      int    // intervals without load
	late      bool   // memory has to be returned once more
}

func (h *heap) keepAdapting() {
	for range time.Tick(tuneInterval) {
		h.adapt()
	}
}

func (h *heap) adapt() {
	live := readMetric(liveMetric)
	percent, release := h.adapted(live, readMetric(allocatedMetric))
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

// adapted returns the new value of GOGC, and whether to return memory now. It returns no memory under
// load, which would need the memory again at once, and none if there was no load.
func (h *heap) adapted(live, allocated uint64) (percent int, release bool) {
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

// percentFor returns GOGC for a live heap.
func (h *heap) percentFor(live uint64) int {
	live = max(live, minLive)
	whole := h.maxGarbage + minLive
	if live >= whole {
		return h.least
	}
	return max(h.least, int((whole-live)*100/live))
}

// limitFor returns the memory limit for a live heap.
func (h *heap) limitFor(live uint64) int64 {
	return min(h.most, max(leastMemory, int64(live/liveParts*memoryParts)))
}

func readMetric(name string) uint64 {
	samples := []metrics.Sample{{Name: name}}
	metrics.Read(samples)
	return samples[0].Value.Uint64()
}

// nameVersion gives a build without a stamp (see the Makefile) a version that Kubernetes' packages can parse: kubectl
// version fails with the placeholder of k8s.io/component-base, which accepts no other version than 0.0.0 instead of it.
func nameVersion() {
	if _, err := semver.ParseSemantic(version.Get().GitVersion); err != nil {
		_ = version.SetDynamicVersion("v0.0.0-devel") // an error leaves the placeholder
	}
}
