package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// attempt is a case whose deletions were requested.
type attempt struct {
	previewCase

	seed       uint64
	made       madeCase
	before     *inventory.Inventory // its objects
	end        func()               // ends its blindness
	prediction preview.Prediction
	result     previewResult
	departures *departures
	cancel     func()
	answers    map[ownership.UID][]error
}

// try makes a case, predicts what its requests do, makes them, and compares.
func (c *previewCluster) try(t *testing.T, w previewCase) previewResult {
	t.Helper()
	return c.finish(t, c.start(t, w))
}

// start makes a case, predicts what its requests do, and makes them.
func (c *previewCluster) start(t *testing.T, w previewCase) attempt {
	t.Helper()
	made := c.make(t, w)
	end := c.blind(t, w, made)
	before := c.read(t, made)
	known := before
	if w.blind != "" {
		known = c.readAsTools(t, w, made)
	}
	requests := slices.DeleteFunc(made.requests(w.requests), func(r preview.Request) bool {
		return known.Object(r.UID) == nil // it went with an object that was deleted before
	})
	a := attempt{previewCase: w, made: made, before: before, end: end, answers: map[ownership.UID][]error{}}
	asked := c.foresee(t, known, requests, c.judge)
	for _, by := range undecided(asked) {
		if _, isDecider := deciderNamed(by); !isDecider {
			a.result.problem = "the preview leaves the decision to " + by
		}
	}
	a.prediction = c.foresee(t, known, requests, knowing{c.judge})
	a.result.objects, a.result.undecided = len(a.prediction.Outcomes), len(undecided(asked)) > 0
	for _, o := range a.prediction.Outcomes {
		switch {
		case o.Race:
			a.result.races++
		case o.Fate == preview.Waiting:
			a.result.waiting++
		case o.Refusal != nil:
			a.result.refused++
		}
	}
	var ctx context.Context
	ctx, a.cancel = context.WithCancel(t.Context())
	a.departures = c.follow(t, ctx, made)
	for _, r := range requests {
		a.answers[r.UID] = append(a.answers[r.UID], c.delete(t, known.Object(r.UID), r.Propagation))
	}
	return a
}

// finish waits until the deletions of an attempt come to rest, and compares.
func (c *previewCluster) finish(t *testing.T, a attempt) previewResult {
	t.Helper()
	defer a.cancel()
	if a.node.waitsForPods() {
		a.departures.awaitPods(a.prediction)
	}
	// Only the collection is settled: another controller removes the finalizer of a
	// CustomResourceDefinition a moment later, and upstream's namespace controller looks again after some time when pods
	// have gone.
	until := time.Now().Add(patience / 6)
	if c.foreign && a.node.waitsForPods() {
		until = time.Now().Add(patience)
	}
	result := a.result
	for c.rest(t, a); ; c.rest(t, a) {
		after := c.read(t, a.made)
		problem := differences(a.before, a.prediction, after)
		if problem != "" && time.Now().Before(until) {
			continue
		}
		if problem != "" {
			problem += fmt.Sprintf("\nthe answers were %v", a.answers)
		}
		if problem == "" {
			problem = c.refused(t, a.prediction, a.answers)
		}
		if problem == "" && !c.foreign {
			problem = c.explained(t, a.prediction)
		}
		if problem == "" {
			ordered := promises(a.before, a.prediction, a.previewCase)
			result.promises, problem = len(ordered), a.departures.broken(t, ordered)
		}
		if result.problem == "" {
			result.problem = problem
		}
		a.end()
		c.release(t, after)
		if a.blind != "" {
			c.settle(t) // once everything can be read again
		}
		return result
	}
}

// differences describes where the prediction differs from the result for the objects of before.
func differences(before *inventory.Inventory, prediction preview.Prediction, after *inventory.Inventory) string {
	outcomes := map[ownership.UID]preview.Outcome{}
	for _, o := range prediction.Outcomes {
		outcomes[o.Object.UID] = o
	}
	var problems []string
	for _, o := range before.Objects {
		outcome, told := outcomes[o.UID]
		if outcome.Race {
			continue
		}
		want := ends(o.Finalizers, o.Owners)
		if told && outcome.Fate == preview.Deleted {
			want = "gone"
		} else if told {
			want = ends(outcome.Finalizers, outcome.Owners)
		}
		got := "gone"
		if now := after.Object(o.UID); now != nil {
			got = ends(now.Finalizers, now.Owners)
			if deleting := now.Phase != ownership.Active; deleting != (outcome.Fate == preview.Waiting || !told && o.Phase != ownership.Active) {
				got += fmt.Sprintf(" deleting=%t", deleting)
			}
		}
		if got != want {
			problems = append(problems, fmt.Sprintf("%s %s is %s; prediction was %s (%s)", o.Kind, o.Name, got, want, outcome.Fate))
		}
	}
	if len(problems) == 0 {
		return ""
	}
	for _, o := range prediction.Outcomes {
		problems = append(problems, fmt.Sprintf("  prediction: %s %s: %s, race=%t, refused=%q, waits for %v", o.Object.Kind, o.Object.Name, o.Fate, o.Race, o.Refused, o.Waits))
	}
	return strings.Join(problems, "\n")
}

// ends describes an object that stays.
func ends(finalizers []string, owners []ownership.Reference) string {
	text := fmt.Sprintf("there, finalizers %q, owners", finalizers)
	for _, r := range owners {
		text += fmt.Sprintf(" %s blocking=%t", r.Name, r.Blocking())
	}
	return text
}
