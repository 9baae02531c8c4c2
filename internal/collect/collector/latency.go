package collector

import (
	"slices"
	"sync"
	"time"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
)

// latency measures the time from the evidence that the last owner of an object is
// gone to the answer to the object's DELETE.
type latency struct {
	mu     sync.Mutex
	counts [len(latencyBounds) + 1]int64 // guarded by mu, and so is all below
	sum    time.Duration
	count  int64
}

// latencyBounds are the bounds of latency's buckets.
var latencyBounds = [...]time.Duration{
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute,
}

// observe adds the deletion of an object with these owners.
func (l *latency) observe(now time.Time, owners []verdict.Owner) {
	last := int64(0)
	for _, o := range owners {
		if o.Standing != verdict.Dangling {
			return // a foreground deletion: the owner still exists
		}
		last = max(last, o.Evidence.Time)
	}
	if last == 0 {
		return
	}
	took := max(0, now.Sub(time.Unix(0, last)))
	bucket, _ := slices.BinarySearch(latencyBounds[:], took) // an upper bound is part of its bucket
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[bucket]++
	l.sum += took
	l.count++
}

// read returns the counts so far.
func (l *latency) read() report.Histogram {
	l.mu.Lock()
	defer l.mu.Unlock()
	return report.Histogram{Bounds: slices.Clone(latencyBounds[:]), Counts: slices.Clone(l.counts[:]), Sum: l.sum, Count: l.count}
}
