package system

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

func TestHeapHasRoom(t *testing.T) {
	const mib, gib = 1 << 20, 1 << 30
	tests := map[string]struct {
		live, memory uint64
		want         int // percent
	}{
		"nothing yet":      {0, 16 * gib, 51200},
		"idle":             {32 * mib, 16 * gib, 1600},
		"idle, small":      {32 * mib, 512 * mib, 200},
		"idle, very small": {32 * mib, 128 * mib, 100},
		"much":             {2 * gib, 16 * gib, 100},
	}
	for name, test := range tests {
		if got := percentFor(test.live, roomIn(test.memory)); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

// The heap has room from the first request on, not only once the start has settled, and
// what it had before when the control plane has ended.
func TestHeapHasRoomAtOnce(t *testing.T) {
	if os.Getenv("GOGC") != "" {
		t.Skip("GOGC is set, which decides about the heap")
	}
	percent := func() uint64 { return heapMetric("/gc/gogc:percent") }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tend(ctx, nil) // and never settles
	}()
	for deadline := time.Now().Add(time.Minute); percent() <= usualPercent; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("the heap grows by %d percent only", percent())
		}
	}
	cancel()
	<-ended
	if got := percent(); got != usualPercent {
		t.Errorf("the heap grows by %d percent afterwards", got)
	}
}

func TestStartHasEndedWhenLittleIsAllocated(t *testing.T) {
	start := settling{50 << 20}
	for _, step := range []struct {
		allocated uint64
		want      bool
	}{{500 << 20, false}, {533 << 20, false}, {565 << 20, true}, {565 << 20, true}} {
		if got := start.hasEnded(step.allocated); got != step.want {
			t.Errorf("%d MiB: %v", step.allocated>>20, got)
		}
	}
}

// Memory is given back at a tick, and once only.
func TestMemoryIsGivenBack(t *testing.T) {
	forced := func() uint64 { return heapMetric("/gc/cycles/forced:gc-cycles") }
	ctx, cancel := context.WithCancel(t.Context())
	ticks, ended := make(chan time.Time), make(chan struct{})
	go func() {
		defer close(ended)
		tend(ctx, ticks)
	}()
	before := forced()
	for deadline := time.After(time.Minute); forced() == before; {
		select {
		case ticks <- time.Time{}:
		case <-deadline:
			t.Fatal("nothing is given back")
		default:
			runtime.Gosched()
		}
	}
	for range 1000 {
		select {
		case ticks <- time.Time{}:
			t.Fatal("it looks again")
		default:
			runtime.Gosched()
		}
	}
	cancel()
	<-ended
}

func TestMemoryLimit(t *testing.T) {
	meminfo := "MemTotal:        4096 kB\nMemFree:         1024 kB\n"
	tests := map[string]struct {
		files map[string]string
		want  uint64
	}{
		"machine": {map[string]string{"proc/meminfo": meminfo}, 4 << 20},
		"container": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1048576\n",
		}, 1 << 20},
		"service": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "1:cpu:/x\n0::/system.slice/coppice.service\n",
			"sys/fs/cgroup/system.slice/coppice.service/memory.max": "2097152\n",
		}, 2 << 20},
		"unlimited container": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n",
		}, 4 << 20},
		"elsewhere": {nil, math.MaxUint64},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for path, text := range test.files {
				path = filepath.Join(root, path)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got := memoryLimit(root); got != test.want {
				t.Errorf("%d, want %d", got, test.want)
			}
		})
	}
}

func TestLiveHeapIsKnown(t *testing.T) {
	held := make([]byte, 32<<20)
	runtime.GC()
	if live := heapMetric(liveBytes); live < uint64(len(held)) || live > 1<<40 {
		t.Errorf("%d bytes in use", live)
	}
	runtime.KeepAlive(held)
}

func TestEachCollectionIsTold(t *testing.T) {
	collected := afterEachCollection(t.Context())
	for n := range 3 {
		deadline := time.After(2 * time.Minute)
		for told := false; !told; {
			runtime.GC()
			select {
			case <-collected:
				told = true
			case <-deadline:
				t.Fatalf("not told of collection %d", n+1)
			default:
			}
		}
	}
}
