package simulation

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// Result is the outcome of a schedule.
type Result struct {
	Schedule  Schedule // the steps that applied
	Violation *Violation
	History   string // line by line, if requested

	Requests, Crashes int
	Left              string   // the remaining objects, if requested
	States            []uint64 // hashes of the states of the cluster after each step, if requested
}

// Options select what to record of a run.
type Options struct {
	History bool
	States  bool
	Left    bool
}

// Run takes the steps of a schedule and lets the cluster come to rest. It skips steps that do not
// apply.
func Run(ctx context.Context, schedule Schedule, options Options) Result {
	steps := schedule.Steps
	return run(ctx, schedule.Settings, options, func(*cluster) (Step, bool) {
		if len(steps) == 0 {
			return Step{}, false
		}
		next := steps[0]
		steps = steps[1:]
		return next, true
	})
}

// Random generates a schedule from a seed, and runs it. It has the given number of steps on
// average.
func Random(ctx context.Context, seed uint64, steps int, options Options) Result {
	g := newGenerator(seed, steps)
	return run(ctx, g.settings, options, g.next)
}

// Unfold takes the steps of a schedule, and continues in an ordinary order until nothing is left
// to do. It returns all steps, and the index of the first ordinary one. A fault can then be put
// into the schedule at each of them.
func Unfold(ctx context.Context, schedule Schedule, order Order) (unfolded Schedule, from int) {
	result, from := unfold(ctx, schedule, order, func(*cluster) {})
	return result.Schedule, from
}

// unfold also calls look before each of the ordinary steps, and
// after the last.
func unfold(ctx context.Context, schedule Schedule, order Order, look func(*cluster)) (result Result, from int) {
	from = len(schedule.Steps)
	steps := schedule.Steps
	result = run(ctx, schedule.Settings, Options{}, func(w *cluster) (Step, bool) {
		if len(steps) == 0 {
			look(w)
			return w.ordinary(order)
		}
		next := steps[0]
		steps = steps[1:]
		if len(steps) == 0 {
			from = w.applied + 1
		}
		return next, true
	})
	return result, min(from, len(result.Schedule.Steps))
}

// checkEvery is the number of steps between two checks of the graph's own invariants: a check of
// the whole graph costs more than most steps.
const checkEvery = 8

func run(ctx context.Context, settings Settings, options Options, next func(*cluster) (Step, bool)) Result {
	var history *bytes.Buffer
	if options.History {
		history = &bytes.Buffer{}
	}
	w := newCluster(ctx, settings, history)
	defer w.close()
	result := Result{Schedule: Schedule{Settings: settings}}
	w.drive(options, next, &result)
	result.Violation = w.violation
	result.Requests, result.Crashes = w.requests, w.crashes
	if history != nil {
		result.History = history.String()
	}
	if options.Left {
		result.Left = w.left()
	}
	return result
}

// left lists the remaining objects, without their revisions.
func (w *cluster) left() string {
	var lines []string
	for _, v := range w.server.standing() {
		lines = append(lines, fmt.Sprintf("%s #%s [%s]", refText(client.RefOf(v.Object)), number(v.UID), ownersText(v.Owners)))
	}
	slices.Sort(lines)
	return strings.Join(lines, ", ")
}

// drive takes steps to the end. A panic of the collector is a violation too.
func (w *cluster) drive(options Options, next func(*cluster) (Step, bool), result *Result) {
	defer func() {
		if r := recover(); r != nil {
			w.fail("panic", "%v", r)
		}
	}()
	for w.violation == nil {
		step, ok := next(w)
		if !ok {
			break
		}
		if !w.apply(step) {
			continue
		}
		result.Schedule.Steps = append(result.Schedule.Steps, step)
		if options.States {
			result.States = append(result.States, w.hash())
		}
		if w.applied%checkEvery == 0 {
			w.checkGraph()
		}
	}
	w.checkGraph()
	w.rest()
}

// checkGraph is the first half of S9: the graph is sound.
func (w *cluster) checkGraph() {
	w.in.collector.View(func(g *ownership.Graph) {
		if err := g.Check(); err != nil {
			w.fail("S9", "the graph is broken: %v", err)
		}
	})
}

// Report returns a violation as text for people to read.
func Report(ctx context.Context, seed uint64, found Result) string {
	shrunk := Shrink(ctx, found)
	again := Run(ctx, shrunk, Options{History: true})
	return fmt.Sprintf("seed %d: %s\nshrunk to %d of %d steps:\n\n%s\nhistory:\n%s",
		seed, again.Violation, len(shrunk.Steps), len(found.Schedule.Steps), shrunk, again.History)
}
