package simulated

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Clock is a clock for simulated nodes that a test can move forward. It runs as fast as the system's
// clock, ahead of it by the total of the moves. A move fires at once all timers that it makes due.
// Create one with NewClock. It is safe for concurrent use.
type Clock struct {
	clock.RealClock // for methods that no node uses, such as tickers

	mu      sync.Mutex
	ahead   time.Duration       // guarded by mu, like all fields below
	waiting map[*timer]struct{} // the timers that have not fired
}

var _ clock.WithTickerAndDelayedExecution = (*Clock)(nil)

// NewClock returns a clock that shows the time of the system.
func NewClock() *Clock { return &Clock{waiting: map[*timer]struct{}{}} }

// Now implements clock.Clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nowLocked()
}

func (c *Clock) nowLocked() time.Time {
	return time.Now().Add(c.ahead) //nolint:forbidigo // this is the clock that is injected
}

// Since implements clock.Clock.
func (c *Clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// Advance moves the clock forward and returns its new time.
func (c *Clock) Advance(by time.Duration) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += by
	now := c.nowLocked()
	for t := range c.waiting {
		t.real.Reset(max(t.at.Sub(now), 0))
	}
	return now
}

// After implements clock.Clock.
func (c *Clock) After(d time.Duration) <-chan time.Time { return c.NewTimer(d).C() }

// Sleep implements clock.Clock.
func (c *Clock) Sleep(d time.Duration) { <-c.After(d) }

// NewTimer implements clock.Clock.
func (c *Clock) NewTimer(d time.Duration) clock.Timer {
	channel := make(chan time.Time, 1)
	return c.newTimer(d, channel, func() {
		select {
		case channel <- c.Now():
		default: // the previous time was not received yet
		}
	})
}

// AfterFunc implements clock.WithDelayedExecution.
func (c *Clock) AfterFunc(d time.Duration, f func()) clock.Timer { return c.newTimer(d, nil, f) }

func (c *Clock) newTimer(d time.Duration, channel <-chan time.Time, fire func()) *timer {
	t := &timer{clock: c, channel: channel}
	c.mu.Lock()
	defer c.mu.Unlock()
	t.at = c.nowLocked().Add(d)
	c.waiting[t] = struct{}{}
	t.real = time.AfterFunc(d, func() {
		c.mu.Lock()
		_, waits := c.waiting[t]
		delete(c.waiting, t)
		c.mu.Unlock()
		if waits {
			fire()
		}
	})
	return t
}

// timer implements clock.Timer.
type timer struct {
	clock   *Clock
	channel <-chan time.Time // nil for a function
	at      time.Time        // guarded by clock.mu; when it fires
	real    *time.Timer
}

// C implements clock.Timer.
func (t *timer) C() <-chan time.Time { return t.channel }

// Stop implements clock.Timer.
func (t *timer) Stop() bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	_, waited := t.clock.waiting[t]
	delete(t.clock.waiting, t)
	t.real.Stop()
	return waited
}

// Reset implements clock.Timer.
func (t *timer) Reset(d time.Duration) bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	_, waited := t.clock.waiting[t]
	t.clock.waiting[t] = struct{}{}
	t.at = t.clock.nowLocked().Add(d)
	t.real.Reset(d)
	return waited
}
