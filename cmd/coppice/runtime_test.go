package main

import (
	"runtime"
	"testing"
)

func TestHeapIsAdapted(t *testing.T) {
	const mib, gib = 1 << 20, 1 << 30
	for name, test := range map[string]struct {
		live, maxGarbage uint64
		want             int // percent
	}{
		"start":                 {0, 512 * mib, 800},
		"idle":                  {128 * mib, 512 * mib, 400},
		"idle, small container": {64 * mib, 64 * mib, 100},
		"many objects":          {2 * gib, 512 * mib, 100},
	} {
		h := &heap{maxGarbage: test.maxGarbage}
		if got, _ := h.look(test.live, 1); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

// Memory is returned once, as soon as little has been allocated in an interval.
func TestMemoryIsReturnedWhenTheStartIsOver(t *testing.T) {
	var h heap
	for i, step := range []struct {
		allocated uint64
		want      bool
	}{{50 << 20, false}, {500 << 20, false}, {517 << 20, false}, {533 << 20, true}, {533 << 20, false}} {
		if _, got := h.look(0, step.allocated); got != step.want {
			t.Errorf("look %d, at %d MiB: %t", i, step.allocated>>20, got)
		}
	}
}

// The Go runtime has the metrics by which the heap is adapted.
func TestMetrics(t *testing.T) {
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
