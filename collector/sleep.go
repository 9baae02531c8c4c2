package collector

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// An idle cluster costs at least two goroutines for each watched kind. runSleeping closes the watches of an idle
// cluster, and ends its workers; the graph stays. One goroutine remains, which reads the server's revision now and
// then. When that has changed, the watches continue from their last revisions, so that all missed changes arrive as
// watch events, including deletions (R3).

// sleepConfig determines when a cluster sleeps.
type sleepConfig struct {
	// idleAfter is how long a cluster must be idle before it sleeps. A cluster that was woken for nothing sleeps after
	// idleAfterNothing, if that is less.
	idleAfter time.Duration
	// probeInterval is the time from one probe to the next.
	probeInterval time.Duration
}

const (
	// idleAfterNothing is how long a cluster stays awake after it was woken for nothing. If a watch lags by more than
	// this, a write may be observed late.
	idleAfterNothing = 5 * time.Second
	// maxSleep is how long a cluster sleeps at most. Servers keep their history for about five minutes. The bound also
	// limits the cost of a server whose revisions cannot be trusted.
	maxSleep = 5 * time.Minute
	// probeTimeout bounds one probe.
	probeTimeout = 30 * time.Second
)

// sleeping is the state of runSleeping, for other goroutines to read.
type sleeping struct {
	wake chan struct{} // has an element when the cluster must wake

	mu    sync.Mutex
	since time.Time // guarded by mu; zero when awake
	err   error     // guarded by mu; of the last probe
}

// wakeUp wakes a sleeping cluster, if the server can be reached. A cluster that is awake stays awake for a while.
func (c *Collector) wakeUp() {
	select {
	case c.sleeping.wake <- struct{}{}:
	default: // it is being woken
	}
}

// asleepSince returns the time at which the cluster fell asleep, zero if it is awake, and the error of the last probe.
func (c *Collector) asleepSince() (since time.Time, err error) {
	c.sleeping.mu.Lock()
	defer c.sleeping.mu.Unlock()
	return c.sleeping.since, c.sleeping.err
}

func (c *Collector) setAsleep(since time.Time, err error) {
	c.sleeping.mu.Lock()
	defer c.sleeping.mu.Unlock()
	c.sleeping.since, c.sleeping.err = since, err
}

// runSleeping is Run for a cluster that sleeps while it is idle. It needs settings.restartable.
func (c *Collector) runSleeping(ctx context.Context, s sleepConfig) error {
	if err := c.lifecycle.Start(); err != nil {
		return fmt.Errorf("garbage collector: %w", err)
	}
	for idle := s.idleAfter; ; {
		revision, worked := c.awake(ctx, s, idle)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // ctx has ended, as it should
		}
		c.log.DebugContext(ctx, "asleep", "revision", revision, "worked", worked)
		c.setAsleep(c.clock.Now(), nil)
		why := c.asleep(ctx, s, revision)
		c.setAsleep(time.Time{}, nil)
		c.log.DebugContext(ctx, "awake", "reason", why)
		idle = s.idleAfter
		if why == changed || why == elapsed {
			idle = min(s.idleAfter, idleAfterNothing)
		}
	}
}

// awake collects until the collector has been idle for a while, or ctx ends. It returns the revision of the server
// up to which everything was observed.
func (c *Collector) awake(ctx context.Context, s sleepConfig, idle time.Duration) (revision uint64, worked bool) {
	var parts sync.WaitGroup
	defer parts.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	observing := c.observe(ctx)
	defer func() { observing.end() }()
	if c.feed.WaitForInitialSync(ctx) != nil {
		return 0, false
	}
	before, _ := c.engine.AtRest()
	parts.Go(func() { c.engine.Run(ctx) })
	if !c.Synced() {
		c.log.InfoContext(ctx, "collecting", c.extent()...)
		c.lifecycle.SetSynced()
	}
	for {
		revision, err := c.untilIdle(ctx, s, idle)
		if err != nil {
			return 0, false // ctx has ended
		}
		// Objects that were observed since then are still in the queue; after end, nothing more is observed.
		observing.end()
		taken, isAtRest := c.engine.AtRest()
		if isAtRest && c.feed.Obstacle() == "" {
			return revision, taken != before
		}
		observing = c.observe(ctx)
		if taken != before {
			idle = s.idleAfter
		}
	}
}

// observation is a run of the feed.
type observation struct {
	cancel context.CancelFunc
	ended  chan struct{}
}

// observe runs the feed.
func (c *Collector) observe(ctx context.Context) observation {
	ctx, cancel := context.WithCancel(ctx)
	o := observation{cancel, make(chan struct{})}
	go func() {
		defer close(o.ended)
		c.feed.Run(ctx, c.sink)
	}()
	return o
}

// end ends the observation; it may be called again.
func (o observation) end() {
	o.cancel()
	<-o.ended
}

// untilIdle waits until the collector was idle for a while in which the server stayed at one revision, and returns
// that revision. All writes up to it are so old that the watches have shown them.
func (c *Collector) untilIdle(ctx context.Context, s sleepConfig, idle time.Duration) (revision uint64, err error) {
	began, first, known := c.clock.Now(), 0, false
	tick := c.clock.NewTicker(min(s.probeInterval, idle))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-c.sleeping.wake:
			began, known = c.clock.Now(), false
		case <-tick.C():
		}
		taken, isAtRest := c.engine.AtRest()
		if !isAtRest || known && taken != first || c.feed.Obstacle() != "" {
			known, idle = false, s.idleAfter
			began = c.clock.Now()
			continue
		}
		switch {
		case !known:
			if revision, err = c.probe(ctx); err == nil {
				began, first, known = c.clock.Now(), taken, true
			}
		case c.clock.Since(began) >= idle:
			if c.mayEnd(ctx, revision) || c.feed.Distrusts() {
				return revision, nil
			}
			known = false
		}
	}
}

// mayEnd reports whether the server is still at that revision, and the revision counts the writes to all watched
// kinds.
func (c *Collector) mayEnd(ctx context.Context, revision uint64) bool {
	now, err := c.probe(ctx)
	if err != nil || now != revision {
		return false
	}
	shared, err := c.feed.RevisionsAreShared(ctx, revision)
	return err == nil && shared
}

// probe reads the revision of the server.
func (c *Collector) probe(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return c.feed.Probe(ctx)
}

// reason is the logged reason why a cluster wakes.
type reason string

const (
	changed reason = "the server was written to"
	asked   reason = "somebody has asked for it"
	elapsed reason = "it has slept long enough"
	another reason = "the server is not the one that was watched"
	ended   reason = "it ends"
)

// asleep waits until there may be something to do, or ctx ends, and returns the reason. It keeps probing a server
// that cannot be reached.
func (c *Collector) asleep(ctx context.Context, s sleepConfig, revision uint64) (why reason) {
	since := c.clock.Now()
	why = changed
	for {
		timer := c.clock.NewTimer(s.probeInterval)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ended
		case <-c.sleeping.wake:
			timer.Stop()
			why = asked
		case <-timer.C():
			if c.clock.Since(since) >= maxSleep {
				why = elapsed
			}
		}
		now, err := c.probe(ctx)
		switch {
		case err != nil:
			c.setAsleep(since, err)
			continue
		case now < revision:
			c.feed.Distrust()
		}
		switch {
		case c.feed.Distrusts():
			return another
		case now > revision || why != changed:
			return why
		}
		c.setAsleep(since, nil)
	}
}
