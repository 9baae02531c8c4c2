package cluster

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// An idle cluster costs at least two goroutines for each watched kind. RunSleeping closes the watches of an idle
// cluster, and ends its workers; the graph stays. One goroutine remains, which reads the server's revision now and
// then. When that has changed, the watches continue from their last revisions, so that all missed changes arrive as
// watch events, including deletions (R3).

// Sleep determines when a cluster sleeps.
type Sleep struct {
	// IdleAfter is how long a cluster must be idle before it sleeps. A cluster that was woken for nothing sleeps after
	// quickly, if that is less.
	IdleAfter time.Duration
	// ProbeInterval is the time from one probe to the next.
	ProbeInterval time.Duration
}

const (
	// quickly is how long a cluster stays awake after it was woken for nothing. If a watch lags by more than this, a
	// write may be seen late.
	quickly = 5 * time.Second
	// longest is how long a cluster sleeps at most. Servers keep their history for about five minutes. The bound also
	// limits the cost of a server whose revisions cannot be trusted.
	longest = 5 * time.Minute
	// probeTimeout bounds one probe.
	probeTimeout = 30 * time.Second
)

// sleeping is the state of RunSleeping, for other goroutines to read.
type sleeping struct {
	wake chan struct{} // has an element when the cluster must wake

	mu    sync.Mutex
	since time.Time // guarded by mu; zero when awake
	err   error     // guarded by mu; of the last probe
}

// Wake wakes a sleeping cluster, if the server can be reached. A cluster that is awake stays awake for a while.
func (c *Cluster) Wake() {
	select {
	case c.sleeping.wake <- struct{}{}:
	default: // it is being woken
	}
}

// Asleep returns the time at which the cluster fell asleep, zero if it is awake, and the error of the last probe.
func (c *Cluster) Asleep() (since time.Time, err error) {
	c.sleeping.mu.Lock()
	defer c.sleeping.mu.Unlock()
	return c.sleeping.since, c.sleeping.err
}

func (c *Cluster) setAsleep(since time.Time, err error) {
	c.sleeping.mu.Lock()
	defer c.sleeping.mu.Unlock()
	c.sleeping.since, c.sleeping.err = since, err
}

// RunSleeping is Run for a cluster that sleeps while it is idle. It needs Options.Restartable.
func (c *Cluster) RunSleeping(ctx context.Context, s Sleep) error {
	if err := c.Start(); err != nil {
		return fmt.Errorf("garbage collector: %w", err)
	}
	for idle := s.IdleAfter; ; {
		revision, worked := c.awake(ctx, s, idle)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // ctx has ended, as it should
		}
		c.log.DebugContext(ctx, "asleep", "revision", revision, "worked", worked)
		c.setAsleep(c.clock.Now(), nil)
		why := c.asleep(ctx, s, revision)
		c.setAsleep(time.Time{}, nil)
		c.log.DebugContext(ctx, "awake", "reason", why)
		idle = s.IdleAfter
		if why == changed || why == elapsed {
			idle = min(s.IdleAfter, quickly)
		}
	}
}

// awake collects until the collector has been idle for a while, or ctx ends. It returns the revision of the server
// up to which everything was observed.
func (c *Cluster) awake(ctx context.Context, s Sleep, idle time.Duration) (revision uint64, worked bool) {
	var parts sync.WaitGroup
	defer parts.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	observing := c.observe(ctx)
	defer func() { observing.end() }()
	if c.Feed.WaitForInitialSync(ctx) != nil {
		return 0, false
	}
	before, _ := c.Collector.AtRest()
	parts.Go(func() { c.Collector.Run(ctx) })
	if !c.IsSynced() {
		c.log.InfoContext(ctx, "collecting", c.extent()...)
		c.SetSynced()
	}
	for {
		revision, err := c.untilIdle(ctx, s, idle)
		if err != nil {
			return 0, false // ctx has ended
		}
		// Objects that were observed since then are still in the queue; after end, nothing more is observed.
		observing.end()
		taken, isAtRest := c.Collector.AtRest()
		if isAtRest && c.Feed.Obstacle() == "" {
			return revision, taken != before
		}
		observing = c.observe(ctx)
		if taken != before {
			idle = s.IdleAfter
		}
	}
}

// observation is a run of the feed.
type observation struct {
	cancel context.CancelFunc
	ended  chan struct{}
}

// observe runs the feed.
func (c *Cluster) observe(ctx context.Context) observation {
	ctx, cancel := context.WithCancel(ctx)
	o := observation{cancel, make(chan struct{})}
	go func() {
		defer close(o.ended)
		c.Feed.Run(ctx, c.Sink)
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
func (c *Cluster) untilIdle(ctx context.Context, s Sleep, idle time.Duration) (revision uint64, err error) {
	began, first, known := c.clock.Now(), 0, false
	tick := c.clock.NewTicker(min(s.ProbeInterval, idle))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-c.sleeping.wake:
			began, known = c.clock.Now(), false
		case <-tick.C():
		}
		taken, isAtRest := c.Collector.AtRest()
		if !isAtRest || known && taken != first || c.Feed.Obstacle() != "" {
			known, idle = false, s.IdleAfter
			began = c.clock.Now()
			continue
		}
		switch {
		case !known:
			if revision, err = c.probe(ctx); err == nil {
				began, first, known = c.clock.Now(), taken, true
			}
		case c.clock.Since(began) >= idle:
			if c.mayEnd(ctx, revision) || c.Feed.Distrusts() {
				return revision, nil
			}
			known = false
		}
	}
}

// mayEnd reports whether the server is still at that revision, and the revision counts the writes to all watched
// kinds.
func (c *Cluster) mayEnd(ctx context.Context, revision uint64) bool {
	now, err := c.probe(ctx)
	if err != nil || now != revision {
		return false
	}
	shared, err := c.Feed.RevisionsAreShared(ctx, revision)
	return err == nil && shared
}

// probe reads the revision of the server.
func (c *Cluster) probe(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return c.Feed.Probe(ctx)
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
func (c *Cluster) asleep(ctx context.Context, s Sleep, revision uint64) (why reason) {
	since := c.clock.Now()
	why = changed
	for {
		timer := c.clock.NewTimer(s.ProbeInterval)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ended
		case <-c.sleeping.wake:
			timer.Stop()
			why = asked
		case <-timer.C():
			if c.clock.Since(since) >= longest {
				why = elapsed
			}
		}
		now, err := c.probe(ctx)
		switch {
		case err != nil:
			c.setAsleep(since, err)
			continue
		case now < revision:
			c.Feed.Distrust()
		}
		switch {
		case c.Feed.Distrusts():
			return another
		case now > revision || why != changed:
			return why
		}
		c.setAsleep(since, nil)
	}
}
