package insight_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/insight"
)

// BenchmarkLongestLock reports the longest time for which the graph is locked while a graph of
// 200 000 objects is read, one in ten of which is related to another.
func BenchmarkLongestLock(b *testing.B) {
	g := newGraph()
	const objects = 200_000
	for i := range objects {
		o := ownership.Object{
			UID: ownership.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", i)), Kind: parseKind("ConfigMap"), Namespace: "ns", Name: fmt.Sprintf("c%d", i), ResourceVersion: "1",
		}
		if i%10 == 1 {
			o.Owners = []ownership.Reference{{APIVersion: "v1", Kind: "ConfigMap", Name: fmt.Sprintf("c%d", i-1), UID: ownership.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", i-1))}}
		}
		g.Observe(o)
	}
	var longest time.Duration
	view := func(read func(g *ownership.Graph)) {
		began := time.Now()
		read(g)
		longest = max(longest, time.Since(began))
	}
	for b.Loop() {
		insight.Whole(view)
	}
	b.ReportMetric(float64(longest.Milliseconds()), "ms-locked")
}
