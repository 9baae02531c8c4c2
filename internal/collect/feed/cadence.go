package feed

import (
	"time"

	"k8s.io/utils/clock"
)

// cadence schedules the requests to discovery: at once at the start, shortly after a hint that
// something changed, then a few more at growing intervals, because discovery lags behind the
// CustomResourceDefinition that announced the change; otherwise every refreshPeriod.
type cadence struct {
	clock clock.Clock
	timer clock.Timer
	at    time.Time // when timer fires
	last  time.Time // when the last request was made
	extra int       // how many more requests follow the last hint
}

const (
	// debounce collects the events of one change: the status of a CustomResourceDefinition
	// is written several times right after its creation.
	debounce = 50 * time.Millisecond
	// afterHint requests follow the first one after a hint, the first of them after firstInterval,
	// each of the others after twice the interval: 3.1 s in all. A stream of hints does not shorten
	// these intervals: with many kinds, an answer takes longer to read.
	afterHint     = 5
	firstInterval = 100 * time.Millisecond
	// refreshPeriod is the interval between requests when nothing hints at a change.
	refreshPeriod = 30 * time.Second
	// firstDiscoveryRetry is the wait after a failure of the first discovery.
	firstDiscoveryRetry = time.Second
)

func newCadence(clock clock.Clock) *cadence {
	return &cadence{clock: clock, timer: clock.NewTimer(0), at: clock.Now()}
}

// resume continues an earlier cadence, whose last request was made then.
func (c *cadence) resume(last time.Time) { c.set(max(0, last.Add(refreshPeriod).Sub(c.clock.Now()))) }

func (c *cadence) due() <-chan time.Time { return c.timer.C() }

func (c *cadence) stop() { c.timer.Stop() }

// hint schedules the requests that follow a hint. It never delays the next request: a
// stream of hints does not keep discovery from being read.
func (c *cadence) hint() {
	c.extra = afterHint
	now := c.clock.Now()
	if soon := max(debounce, c.last.Add(firstInterval).Sub(now)); c.at.Sub(now) > soon {
		c.set(soon)
	}
}

// next sets the timer for the request that follows the one just made.
func (c *cadence) next(discovered bool) {
	c.last = c.clock.Now()
	switch {
	case c.extra > 0:
		c.set(firstInterval << (afterHint - c.extra))
		c.extra--
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
