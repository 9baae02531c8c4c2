package sections

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coppice-dev/coppice/bench/internal/controlplane"
	"github.com/coppice-dev/coppice/bench/internal/crowd"
	"github.com/coppice-dev/coppice/bench/internal/stopwatch"
)

const (
	// ownersRate is the number of owners that are deleted in a second while objects change.
	ownersRate = 20
	// collectorsOfFailover run at the same time, the leader and the standby.
	collectorsOfFailover = 2
	// growth is how much more memory than at its start a collector may take later.
	growth = 1.2
)

// events measures a collector while objects change, and some owners are deleted.
func (m *multitude) events(ctx context.Context, c *controlplane.Started) error {
	if err := m.server.Begin(ctx); err != nil {
		return err
	}
	before, err := m.processorTimes(c)
	if err != nil {
		return err
	}
	watch := stopwatch.Start()
	changed, err := m.server.Change(ctx, m.Sizes.EventRate, ownersRate, m.Sizes.EventSeconds)
	if err != nil {
		return err
	}
	seconds := watch.Seconds()
	// A collector that does not keep up has work left: that is part of the cost of the events.
	state, err := m.await(ctx, c, func(r crowd.Report) bool { return r.Garbage == 0 })
	if err != nil {
		return err
	}
	after, err := m.processorTimes(c)
	if err != nil {
		return err
	}
	memory, err := c.Anonymous()
	if err != nil {
		return err
	}
	m.add(collectAlone, m.with("events"), "events/s", float64(changed)/seconds)
	m.add(collectAlone, m.with("processor for these"), "cores", (after.collector-before.collector).Seconds()/seconds)
	m.add(crowdServer, m.with("processor for these"), "cores", (after.server-before.server).Seconds()/seconds)
	m.add(collectAlone, m.with("objects collected meanwhile"), "", float64(state.Correct))
	m.add(collectAlone, m.with("a decision meanwhile, median"), "ms", state.P50*1000)
	m.add(collectAlone, m.with("a decision meanwhile, p99"), "ms", state.P99*1000)
	m.add(collectAlone, m.with("after these, RssAnon"), "MB", memory)
	return nil
}

// processorTimes are the processor times of a collector and of its server.
type processorTimes struct{ collector, server time.Duration }

func (m *multitude) processorTimes(c *controlplane.Started) (processorTimes, error) {
	collector, err := c.ProcessorTime()
	if err != nil {
		return processorTimes{}, err
	}
	server, err := m.server.ProcessorTime()
	return processorTimes{collector, server}, err
}

// failover measures how fast a standby replaces a leader that is killed, on the largest of the measured numbers of which
// the memory has room for two collectors.
func (m *multitude) failover(ctx context.Context, costs []cost) (err error) {
	free, err := controlplane.Available()
	if err != nil {
		return err
	}
	at := len(costs) - 1
	for at > 0 && costs[at].peak*collectorsOfFailover*growth > free {
		at--
	}
	server := m.server
	if costs[at].objects != m.objects {
		if server, err = controlplane.StartCrowd(ctx, costs[at].objects); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, server.Stop()) }()
	}
	if err := (&multitude{m.Bench, server, costs[at].objects}).replace(ctx, costs[at]); err != nil {
		return fmt.Errorf("failover with %d objects: %w", costs[at].objects, err)
	}
	return nil
}

// replace starts a leader and a standby, and kills the leader.
func (m *multitude) replace(ctx context.Context, known cost) (err error) {
	leader, err := m.server.StartCollect(m.Coppice, "--leader-elect")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leader.Kill()) }()
	if err := m.collected(ctx, leader); err != nil {
		return fmt.Errorf("the leader: %w", err)
	}
	standby, err := m.server.StartCollect(m.Coppice, "--leader-elect")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, standby.Kill()) }()
	// A standby may read all objects, too, and does not say when it has.
	if err := pause(ctx, time.Duration(2*known.all*float64(time.Second))+m.Sizes.Steady); err != nil {
		return err
	}
	memory, err := standby.Anonymous()
	if err != nil {
		return err
	}
	if err := leader.Kill(); err != nil {
		return err
	}
	ends, err := m.server.Report(ctx)
	if err != nil {
		return err
	}
	if err := m.makeGarbage(ctx); err != nil {
		return err
	}
	state, err := m.await(ctx, standby, func(r crowd.Report) bool { return r.First != 0 })
	if err != nil {
		return fmt.Errorf("the standby: %w", err)
	}
	m.add(collectAlone, m.with("standby, RssAnon"), "MB", memory)
	m.add(collectAlone, m.with("from the end of a killed leader's Lease to the first correct deletion"), "s",
		time.Duration(state.First-ends.LeaseEnds).Seconds())
	_, err = m.await(ctx, standby, func(r crowd.Report) bool { return r.Garbage == 0 })
	return err
}

// collected waits until a collector has deleted garbage.
func (m *multitude) collected(ctx context.Context, c *controlplane.Started) error {
	if err := m.makeGarbage(ctx); err != nil {
		return err
	}
	_, err := m.await(ctx, c, func(r crowd.Report) bool { return r.First != 0 && r.Garbage == 0 })
	return err
}
