package collector

import (
	"sync"
	"time"

	"github.com/coppice-dev/coppice/internal/verdict"
)

// Histogram counts durations by upper bounds, as Prometheus does.
type Histogram struct {
	// Bounds are the upper bounds of the buckets, ascending.
	Bounds []time.Duration `json:"bounds"`
	// Counts are those of the buckets, each without the ones below it; the last one,
	// which has no bound, is what is above all bounds.
	Counts []int64       `json:"counts"`
	Sum    time.Duration `json:"sum"`
	Count  int64         `json:"count"`
}

func latencyBounds() []time.Duration {
	const ms = time.Millisecond
	return []time.Duration{
		1 * ms, 2500 * time.Microsecond, 5 * ms, 10 * ms, 25 * ms, 50 * ms, 100 * ms, 250 * ms, 500 * ms,
		time.Second, 2500 * ms, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute,
	}
}

// latency measures the time from the evidence that the last owner of an object is
// gone to the answer to the object's DELETE.
type latency struct {
	mu        sync.Mutex
	histogram Histogram // guarded by mu
}

// add takes in that an object with these owners was deleted.
func (l *latency) add(now time.Time, owners []verdict.Owner) {
	last := int64(0)
	for _, o := range owners {
		if o.Standing != verdict.Dangling {
			return // a foreground deletion: the owner is still there
		}
		last = max(last, o.Evidence.Time)
	}
	if last == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	h := &l.histogram
	if h.Bounds == nil {
		h.Bounds = latencyBounds()
		h.Counts = make([]int64, len(h.Bounds)+1)
	}
	took := max(0, now.Sub(time.Unix(0, last)))
	bucket := 0
	for bucket < len(h.Bounds) && took > h.Bounds[bucket] {
		bucket++
	}
	h.Counts[bucket]++
	h.Sum += took
	h.Count++
}

// read returns a copy.
func (l *latency) read() Histogram {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.histogram
	if h.Bounds == nil {
		h.Bounds = latencyBounds()
	}
	counts := make([]int64, len(h.Bounds)+1)
	copy(counts, h.Counts)
	h.Counts = counts
	return h
}
