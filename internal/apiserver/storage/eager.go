package storage

import (
	"time"

	"k8s.io/utils/clock"
)

const (
	// libraryProgress is how often the library's watch cache asks etcd how far the watch
	// has come, while a consistent list of a resource that is quiet waits to know it.
	libraryProgress = 100 * time.Millisecond
	// eagerProgress is how often it does so here, where to ask is a function call.
	eagerProgress = 2 * time.Millisecond
)

// eagerClock is the clock of the watch caches: the real one, but for the library's
// constant, which is meant for an etcd across a network and for many API servers. With
// it the second of two consistent lists took 100 ms, and so did each wave of a
// namespace that goes. Should the library choose another constant, that is how it is
// again, and a test fails.
type eagerClock struct{ clock.RealClock }

// NewTimer implements clock.Clock.
func (c eagerClock) NewTimer(d time.Duration) clock.Timer {
	return eagerTimer{c.RealClock.NewTimer(eager(d))}
}

type eagerTimer struct{ clock.Timer }

// Reset implements clock.Timer.
func (t eagerTimer) Reset(d time.Duration) bool { return t.Timer.Reset(eager(d)) }

func eager(d time.Duration) time.Duration {
	if d == libraryProgress {
		return eagerProgress
	}
	return d
}
