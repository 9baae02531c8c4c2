package storage

import (
	"time"

	"k8s.io/utils/clock"
)

const (
	// cacherProgressInterval is progressRequestPeriod of k8s.io/apiserver's
	// storage/cacher/progress, which is not exported.
	cacherProgressInterval = 100 * time.Millisecond
	// progressInterval replaces it.
	progressInterval = 2 * time.Millisecond
)

// progressClock is the clock of the watch caches: the real one, except that timers of
// cacherProgressInterval are shortened to progressInterval.
//
// Problem: a consistent list is served from the watch cache once the cache knows that it is as new
// as etcd. If the resource is quiet, the cache requests the progress of its watch from etcd, every
// 100 ms while a list is waiting. That interval is meant for many API servers and an etcd across a
// network; here, the request is a function call. The interval cannot be configured, but the clock
// of a cache can.
//
// Benefit: without it, the second of two consecutive consistent lists took 100 ms, and so did each
// phase of the deletion of a namespace. BenchmarkConsistentList prints both.
//
// If the interval of the cacher changes, lists are slow again, and TestCacheRequestsProgressByItsClock fails.
type progressClock struct{ clock.RealClock }

// NewTimer implements clock.Clock.
func (c progressClock) NewTimer(d time.Duration) clock.Timer {
	return progressTimer{c.RealClock.NewTimer(shortened(d))}
}

type progressTimer struct{ clock.Timer }

// Reset implements clock.Timer.
func (t progressTimer) Reset(d time.Duration) bool { return t.Timer.Reset(shortened(d)) }

func shortened(d time.Duration) time.Duration {
	if d == cacherProgressInterval {
		return progressInterval
	}
	return d
}
