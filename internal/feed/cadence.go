package feed

import (
	"time"

	"k8s.io/utils/clock"
)

// cadence says when discovery is asked: at once at the start, shortly after a
// hint that something changed, then a few times more at growing distances,
// because discovery lags behind the CustomResourceDefinition that announced the
// change; else every refreshPeriod.
type cadence struct {
	clock clock.Clock
	timer clock.Timer
	at    time.Time // when timer fires
	again int       // how many requests are still to follow the last hint
}

const (
	// debounce gathers the events of one change: a CustomResourceDefinition has
	// its status written several times in its first moments.
	debounce = 50 * time.Millisecond
	// afterHint requests follow the first one after a hint, the first of them
	// after firstDistance, each of the others after twice the distance: 3.1 s in all.
	afterHint     = 5
	firstDistance = 100 * time.Millisecond
	// refreshPeriod is how often discovery is asked when nothing hints at a change.
	refreshPeriod = 30 * time.Second
	// firstDiscoveryRetry is the wait after a failure before anything is known.
	firstDiscoveryRetry = time.Second
)

func newCadence(clock clock.Clock) *cadence {
	return &cadence{clock: clock, timer: clock.NewTimer(0), at: clock.Now()}
}

func (c *cadence) due() <-chan time.Time { return c.timer.C() }

func (c *cadence) stop() { c.timer.Stop() }

// soon takes in a hint. It never moves the next request back: a stream of hints
// does not keep discovery from being asked.
func (c *cadence) soon() {
	c.again = afterHint
	if c.at.Sub(c.clock.Now()) > debounce {
		c.set(debounce)
	}
}

// next sets the timer for the request that follows the one just made.
func (c *cadence) next(discovered bool) {
	switch {
	case c.again > 0:
		c.set(firstDistance << (afterHint - c.again))
		c.again--
	case discovered:
		c.set(refreshPeriod)
	default:
		c.set(firstDiscoveryRetry)
	}
}

func (c *cadence) set(d time.Duration) {
	c.at = c.clock.Now().Add(d)
	c.timer.Reset(d)
}
