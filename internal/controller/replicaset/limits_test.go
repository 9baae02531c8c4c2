package replicaset

import (
	"math"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A step depends on the pods that exist, not on how many are desired.
func TestLargestSetCostsNoMoreThanItsPods(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	p := Decide(set(math.MaxInt32), Observed{Mine: []*corev1.Pod{pod("a"), pod("b", "unready")}}, epoch)
	runtime.ReadMemStats(&after)
	if bytes := after.TotalAlloc - before.TotalAlloc; bytes > 1<<20 || p.Create != burst || len(p.Delete) > 0 {
		t.Errorf("%d bytes are allocated, %d pods created, %d deleted", bytes, p.Create, len(p.Delete))
	}
}
