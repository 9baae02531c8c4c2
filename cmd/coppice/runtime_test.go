package main

import (
	"runtime"
	"runtime/debug"
	"testing"

	semver "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-base/version"
)

func TestHeapIsAdapted(t *testing.T) {
	const mib, gib = 1 << 20, 1 << 30
	for name, test := range map[string]struct {
		live, maxGarbage uint64
		want             int // percent
	}{
		"start":                 {0, 512 * mib, 800},
		"idle":                  {128 * mib, 512 * mib, 350},
		"idle, small container": {64 * mib, 64 * mib, 100},
		"some objects":          {320 * mib, 512 * mib, 80},
		"many objects":          {2 * gib, 512 * mib, leastPercent},
	} {
		h := &heap{maxGarbage: test.maxGarbage, least: leastPercent}
		if got, _ := h.adapted(test.live, 1); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

func TestCollectorHasLittleGarbage(t *testing.T) {
	for live, want := range map[uint64]int{10 << 20: 100, 100 << 20: 28, 2 << 30: collectorPercent} {
		h := &heap{maxGarbage: collectorGarbage, least: collectorPercent}
		if got, _ := h.adapted(live, 1); got != want {
			t.Errorf("%d MiB: %d, want %d", live>>20, got, want)
		}
	}
}

func TestMemoryIsLimitedInProportion(t *testing.T) {
	for name, test := range map[string]struct {
		live uint64
		most int64
		want int64
	}{
		"idle":                    {50_000_000, 8e9, leastMemory},
		"idle, small container":   {50_000_000, 3e8, 3e8},
		"many objects":            {3_000_000_000, 8e9, 5_000_000_000},
		"many for this container": {3_000_000_000, 4e9, 4e9},
	} {
		h := heap{most: test.most}
		if got := h.limitFor(test.live); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

// After each load, memory is returned after some intervals with few allocations, and once more later.
func TestMemoryIsReturnedAfterLoad(t *testing.T) {
	const mib = 1 << 20
	h := heap{maxGarbage: maxGarbage, least: leastPercent}
	allocated := uint64(50 * mib)
	for _, phase := range []struct {
		what  string
		rate  uint64 // in MiB per interval
		ticks int
		want  int // how often memory is returned
	}{
		{"the start", 450, 2, 0},
		{"too short a pause", 16, calmTicks - 1, 0},
		{"a bit too much", 17, 1, 0},
		{"calm", 2, calmTicks + 10, 1},
		{"a load", 300, 20, 0},
		{"a pause of it", 1, calmTicks - 1, 0},
		{"more of it", 300, 1, 0},
		{"calm again", 1, calmTicks, 1},
		{"calm for longer", 1, lateTicks - calmTicks, 1},
		{"calm for long", 1, 50, 0},
		{"hardly a load", 20, 2, 0},
		{"hardly anything to return", 0, calmTicks + 10, 0},
	} {
		got := 0
		for range phase.ticks {
			allocated += phase.rate * mib
			if _, release := h.adapted(0, allocated); release {
				got++
			}
		}
		if got != phase.want {
			t.Errorf("%s: returned %d times, want %d", phase.what, got, phase.want)
		}
	}
}

// The Go runtime has the metrics by which the heap is adapted.
func TestRuntimeHasTheMetricsOfTheHeap(t *testing.T) {
	held := make([]byte, 32<<20)
	runtime.GC()
	live, allocated := readMetric(liveMetric), readMetric(allocatedMetric)
	if live < uint64(len(held)) || allocated < live {
		t.Errorf("%d bytes are in use, %d were allocated", live, allocated)
	}
	runtime.KeepAlive(held)
}

func TestOnlyControlPlanesAreTuned(t *testing.T) {
	for _, test := range []struct {
		args []string
		want bool
	}{{nil, false}, {[]string{"up", "--ephemeral"}, true}, {[]string{"collect"}, false}, {[]string{"kubectl", "get", "up"}, false}} {
		if got := runsControlPlane(test.args); got != test.want {
			t.Errorf("%q: %t", test.args, got)
		}
	}
}

// TestStartOfASuite: the API server of a suite begins with small cycles, and then adapts as others do. GOGC in the
// environment takes precedence.
func TestStartOfASuite(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	h := &heap{least: leastPercent}
	h.setPercent(startPercent)
	if got := debug.SetGCPercent(startPercent); got != startPercent {
		t.Errorf("GOGC is %d at the start, want %d", got, startPercent)
	}
	h.adapt()
	if got := debug.SetGCPercent(leastPercent); got != leastPercent {
		t.Errorf("GOGC is %d later, want %d", got, leastPercent)
	}
	h = &heap{least: leastPercent, fixed: true}
	h.setPercent(startPercent)
	if got := debug.SetGCPercent(leastPercent); got != leastPercent {
		t.Errorf("GOGC has become %d though the environment sets it", got)
	}
}

// A build without a stamp has a version that kubectl can compare with that of a server.
func TestVersionCanBeParsed(t *testing.T) {
	nameVersion()
	if _, err := semver.ParseSemantic(version.Get().GitVersion); err != nil {
		t.Error(err)
	}
}
