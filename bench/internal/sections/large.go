package sections

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/coppice-dev/coppice/bench/internal/controlplane"
	"github.com/coppice-dev/coppice/bench/internal/crowd"
	"github.com/coppice-dev/coppice/bench/internal/report"
	"github.com/coppice-dev/coppice/bench/realserver"
)

const (
	// goneOwners is the number of owners that do not exist when a collector starts.
	goneOwners = 10
	// reportInterval is the time between two reports of the server, and between two readings of memory.
	reportInterval = 100 * time.Millisecond
	// collectedTimeout bounds the time until garbage is collected.
	collectedTimeout = 10 * time.Minute
	// spare is the share of the free memory that stays free.
	spare = 0.1
)

// cost has the figures of one start of a collector.
type cost struct {
	objects               int
	first, all, processor float64 // seconds from the start, and of the processor
	peak, steady          float64 // MB
}

// large measures collectors on a synthetic server with more and more objects.
func large(ctx context.Context, b *Bench) error {
	var costs []cost
	for _, n := range b.Sizes.Multitudes {
		if err := fits(costs, n); err != nil {
			return err
		}
		measured, err := b.multitude(ctx, n, costs)
		if err != nil {
			return fmt.Errorf("%d objects: %w", n, err)
		}
		costs = append(costs, measured)
	}
	b.exponents(costs)
	return nil
}

// fits returns an error if the collector is likely to need more memory than is free.
func fits(costs []cost, n int) error {
	free, err := controlplane.Available()
	if err != nil || len(costs) == 0 {
		return err
	}
	last := costs[len(costs)-1]
	if expected := last.peak * float64(n) / float64(last.objects); expected > free*(1-spare) {
		return fmt.Errorf("%d objects are expected to need %.0f MB, and %.0f MB are free: choose fewer with -objects", n, expected, free)
	}
	return nil
}

// multitude measures one number of objects. costs are those of smaller numbers.
func (b *Bench) multitude(ctx context.Context, n int, costs []cost) (_ cost, err error) {
	server, err := controlplane.StartCrowd(ctx, n)
	if err != nil {
		return cost{}, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	m := &multitude{Bench: b, server: server, objects: n}
	if err := m.makeGarbage(ctx); err != nil {
		return cost{}, err
	}
	collect, err := server.StartCollect(b.Coppice)
	if err != nil {
		return cost{}, err
	}
	defer func() { err = errors.Join(err, collect.Kill()) }()
	mine, err := m.measure(ctx, collectAlone, collect)
	if err != nil {
		return cost{}, err
	}
	if err := m.serverCost(); err != nil {
		return cost{}, err
	}
	isLargest := n == b.Sizes.Multitudes[len(b.Sizes.Multitudes)-1]
	if isLargest {
		if err := m.events(ctx, collect); err != nil {
			return cost{}, fmt.Errorf("events: %w", err)
		}
	}
	if err := collect.Kill(); err != nil {
		return cost{}, err
	}
	if n == b.compared() {
		if err := m.compare(ctx, mine); err != nil {
			return cost{}, fmt.Errorf("kube-controller-manager: %w", err)
		}
	}
	if isLargest {
		err = m.failover(ctx, append(costs, mine))
	}
	return mine, err
}

// compared returns the number of objects at which upstream's collector is measured: the largest that is not too large for
// it, or none.
func (b *Bench) compared() int {
	found := 0
	for _, n := range b.Sizes.Multitudes {
		if n <= b.Sizes.Compared {
			found = max(found, n)
		}
	}
	return found
}

// multitude measures on one server, with one number of objects.
type multitude struct {
	*Bench
	server  *controlplane.Crowd
	objects int
}

// with adds the number of objects to a figure's name.
func (m *multitude) with(what string) string {
	return fmt.Sprintf("%s objects: %s", report.Number(float64(m.objects)), what)
}

// measure measures a collector that was just started.
func (m *multitude) measure(ctx context.Context, side string, c *controlplane.Started) (cost, error) {
	measured := cost{objects: m.objects}
	before, err := m.server.Report(ctx)
	if err != nil {
		return measured, err
	}
	var peak float64
	state, err := m.await(ctx, c, func(r crowd.Report) bool {
		now, err := c.Anonymous()
		if err == nil {
			peak = max(peak, now)
		}
		return r.First != 0 && r.Garbage == 0
	})
	if err != nil {
		return measured, err
	}
	measured.first = time.Unix(0, state.First).Sub(c.Began).Seconds()
	measured.all = time.Unix(0, state.Last).Sub(c.Began).Seconds()
	measured.peak = peak
	took, err := c.ProcessorTime()
	if err != nil {
		return measured, err
	}
	measured.processor = took.Seconds()
	if err := pause(ctx, m.Sizes.Steady); err != nil {
		return measured, err
	}
	if measured.steady, err = c.Anonymous(); err != nil {
		return measured, err
	}
	m.add(side, m.with("start to the first correct deletion"), "s", measured.first)
	m.add(side, m.with("start to the last one"), "s", measured.all)
	m.add(side, m.with("processor time of the start"), "s", measured.processor)
	m.add(side, m.with("peak of the start, RssAnon"), "MB", measured.peak)
	m.add(side, m.with(fmt.Sprintf("%.0f s later, RssAnon", m.Sizes.Steady.Seconds())), "MB", measured.steady)
	m.add(side, m.with("requests of the start, without lists and watches"), "", float64(singles(state)-singles(before)))
	return measured, nil
}

// singles returns the number of requests for single objects.
func singles(r crowd.Report) int {
	return r.Requests["GET"] + r.Requests["DELETE"] + r.Requests["PATCH"]
}

// makeGarbage removes owners, so that a collector has something to collect.
func (m *multitude) makeGarbage(ctx context.Context) error {
	if err := m.server.Begin(ctx); err != nil {
		return err
	}
	_, err := m.server.RemoveOwners(ctx, goneOwners)
	return err
}

// await asks the server for its report until enough returns true. A wrong deletion is an error, and so is the end of the
// collector.
func (m *multitude) await(ctx context.Context, c *controlplane.Started, enough func(crowd.Report) bool) (crowd.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, collectedTimeout)
	defer cancel()
	for {
		state, err := m.server.Report(ctx)
		switch {
		case err != nil:
			return state, err
		case state.Wrong > 0:
			return state, fmt.Errorf("%d deletions were wrong, such as %v", state.Wrong, state.Examples)
		case enough(state):
			return state, nil
		}
		if err := errors.Join(c.Failed(), pause(ctx, reportInterval)); err != nil {
			return state, fmt.Errorf("%d objects are still garbage: %w", state.Garbage, err)
		}
	}
}

// serverCost measures the server after the start of one collector.
func (m *multitude) serverCost() error {
	took, err := m.server.ProcessorTime()
	if err != nil {
		return err
	}
	memory, err := m.server.Anonymous()
	if err != nil {
		return err
	}
	m.add(crowdServer, m.with("processor time of the start"), "s", took.Seconds())
	m.add(crowdServer, m.with("peak of the start, RssAnon"), "MB", memory)
	return nil
}

// compare measures kube-controller-manager on the same server.
func (m *multitude) compare(ctx context.Context, mine cost) error {
	binaries, err := m.Kubernetes()
	if err != nil {
		return err
	}
	theirs, err := m.upstream(ctx, binaries)
	if err != nil {
		return err
	}
	ratio := func(what string, mine, theirs float64) {
		m.add(collectAlone, m.with(what+", compared with "+limitsLifted), "times", mine/theirs)
	}
	ratio("start to the first correct deletion", mine.first, theirs.first)
	ratio("start to the last one", mine.all, theirs.all)
	ratio("processor time of the start", mine.processor, theirs.processor)
	ratio("peak of the start, RssAnon", mine.peak, theirs.peak)
	ratio("steady RssAnon", mine.steady, theirs.steady)
	return nil
}

func (m *multitude) upstream(ctx context.Context, binaries realserver.Binaries) (measured cost, err error) {
	if err := m.makeGarbage(ctx); err != nil {
		return cost{}, err
	}
	manager, err := m.server.StartControllerManager(binaries, append(lifted(), "--controllers=garbage-collector-controller")...)
	if err != nil {
		return cost{}, err
	}
	defer func() { err = errors.Join(err, manager.Kill()) }()
	return m.measure(ctx, limitsLifted, manager)
}

// exponents adds the exponents with which the costs grow.
func (b *Bench) exponents(costs []cost) {
	if len(costs) < 2 {
		return
	}
	grow := func(what string, of func(cost) float64) {
		var sizes, values []float64
		for _, c := range costs {
			sizes = append(sizes, float64(c.objects))
			values = append(values, of(c))
		}
		b.add(collectAlone, "exponent: "+what, "", exponent(sizes, values))
	}
	grow("start to the first correct deletion", func(c cost) float64 { return c.first })
	grow("start to the last one", func(c cost) float64 { return c.all })
	grow("processor time of the start", func(c cost) float64 { return c.processor })
	grow("peak of the start, RssAnon", func(c cost) float64 { return c.peak })
	grow("steady RssAnon", func(c cost) float64 { return c.steady })
}

// exponent returns the e of y = c·xᵉ that fits best, by least squares of the logarithms.
func exponent(x, y []float64) float64 {
	var sumX, sumY, sumXX, sumXY float64
	for i := range x {
		lx, ly := math.Log(x[i]), math.Log(y[i])
		sumX, sumY, sumXX, sumXY = sumX+lx, sumY+ly, sumXX+lx*lx, sumXY+lx*ly
	}
	n := float64(len(x))
	return (n*sumXY - sumX*sumY) / (n*sumXX - sumX*sumX)
}
