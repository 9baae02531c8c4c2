package e2e

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// previewCases and previewSeed are the random cases of TestPreviewIsWhatHappens.
//

var (
	previewCases = flag.Int("preview.cases", 20, "number of random cases that are previewed and deleted")
	previewSeed  = flag.Uint64("preview.seed", 1, "seed of the first case; the others follow")
)

// TestPreviewIsWhatHappens makes random cases, each in its own namespace, predicts the effect of
// deletions, makes the deletions and compares: the removed objects, the owner references and
// finalizers of the remaining ones, who refuses to delete them, and the order of owners and dependents,
// where the preview promises one. Races, as the preview reports them, are left out of the comparison,
// and must be rare; so must be cases in which a webhook decides, whose answer the comparison knows. A
// failed case is made again with fewer objects.
func TestPreviewIsWhatHappens(t *testing.T) {
	c := newPreviewCluster(t, "preview")
	c.prepare(t, *previewCases+2)
	c.guard(t)
	objects, races, waiting, promises, refused, undecided := 0, 0, 0, 0, 0, 0
	for n := range *previewCases {
		seed := *previewSeed + uint64(n)
		r := rand.New(rand.NewPCG(seed, seed))
		w := drawCase(r)
		w.drawGuards(r)
		result := c.try(t, w)
		objects, races, waiting = objects+result.objects, races+result.races, waiting+result.waiting
		promises, refused = promises+result.promises, refused+result.refused
		if result.undecided {
			undecided++
		}
		if result.problem != "" {
			smaller, problem := w, result.problem
			if !c.foreign { // there each try takes a minute
				smaller, problem = c.shrink(t, w, result.problem)
			}
			t.Fatalf("-preview.seed=%d:\n%s\nin this case:\n%s", seed, problem, smaller)
		}
	}
	t.Logf("%d cases with %d objects, of which %d waited in the end, %d were refused and %d were in a race; of %d pairs it was predicted who goes first; in %d cases a webhook decided",
		*previewCases, objects, waiting, refused, races, promises, undecided)
	if *previewCases >= 20 && (waiting == 0 || refused == 0 || promises == 0 || races*10 > objects || undecided*10 > *previewCases) {
		t.Errorf("%d of %d objects waited, %d were refused, %d were in a race, the order of %d pairs was predicted, and %d cases were undecided: this shows little",
			waiting, objects, refused, races, promises, undecided)
	}
}

// previewCase is a case to be made in a namespace.
type previewCase struct {
	objects  []previewObject
	late     []previewEdge // references that are added once all objects are there; they make cycles
	early    []previewDelete
	requests []previewDelete
	large    bool   // the size of the namespace, for guards with parameters
	guard    string // of the namespace
}

type previewObject struct {
	id     int
	kind   string
	owners []previewEdge
	held   bool
	// protect is the mode in which the object is protected; empty for most.
	protect protection.Mode
	// guard is what may refuse its deletion; empty for most.
	guard string
}

// previewEdge is an owner reference between objects, by id. from counts only in late ones.
type previewEdge struct {
	from, owner int
	blocks      bool
}

// previewDelete is a DELETE of an object. The ids below belong to the objects' surroundings.
type previewDelete struct {
	id     int
	policy metav1.DeletionPropagation
}

const (
	theNamespace  = -1
	theDefinition = -2
)

// drawCase draws a case.
func drawCase(r *rand.Rand) previewCase {
	kinds := []string{"ConfigMap", "Secret", "Widget", "Role"}
	policies := []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan, ""}
	chance := func(percent int) bool { return r.IntN(100) < percent }
	w := previewCase{}
	for id := range 3 + r.IntN(9) {
		o := previewObject{id: id, kind: kinds[r.IntN(len(kinds))], held: chance(12)}
		for owner := range id {
			if chance(150 / (id + 2)) {
				o.owners = append(o.owners, previewEdge{owner: owner, blocks: chance(60)})
			}
		}
		w.objects = append(w.objects, o)
	}
	for id := range w.objects {
		if chance(8) {
			w.objects[id].protect = []protection.Mode{protection.Always, protection.Cascading}[r.IntN(2)]
		}
	}
	any := func() int { return r.IntN(len(w.objects)) }
	if chance(30) {
		w.late = append(w.late, previewEdge{from: any(), owner: any(), blocks: chance(80)})
	}
	if chance(25) {
		id := any()
		w.objects[id].held = true
		w.early = append(w.early, previewDelete{id, policies[r.IntN(len(policies))]})
	}
	switch {
	case chance(15):
		w.requests = []previewDelete{{theNamespace, policies[r.IntN(2)]}}
	case chance(15):
		w.requests = []previewDelete{{theDefinition, policies[r.IntN(2)]}}
	default:
		for range 1 + r.IntN(3) {
			w.requests = append(w.requests, previewDelete{any(), policies[r.IntN(len(policies))]})
		}
	}
	return w
}

// without returns the case without an object.
func (w previewCase) without(id int) previewCase {
	other := func(edges []previewEdge) []previewEdge {
		return slices.DeleteFunc(slices.Clone(edges), func(e previewEdge) bool { return e.owner == id })
	}
	deletes := func(all []previewDelete) []previewDelete {
		return slices.DeleteFunc(slices.Clone(all), func(d previewDelete) bool { return d.id == id })
	}
	smaller := w
	smaller.objects, smaller.early, smaller.requests = nil, deletes(w.early), deletes(w.requests)
	smaller.late = slices.DeleteFunc(other(w.late), func(e previewEdge) bool { return e.from == id })
	for _, o := range w.objects {
		if o.id != id {
			o.owners = other(o.owners)
			smaller.objects = append(smaller.objects, o)
		}
	}
	return smaller
}

// String describes the case.
func (w previewCase) String() string {
	var text strings.Builder
	for _, o := range w.objects {
		fmt.Fprintf(&text, "  %s o%d held=%t protect=%s guard=%s owners=%v\n", o.kind, o.id, o.held, o.protect, o.guard, o.owners)
	}
	fmt.Fprintf(&text, "  added later: %v\n  deleted before: %v\n  requests: %v\n  large=%t guard=%s", w.late, w.early, w.requests, w.large, w.guard)
	return text.String()
}

// previewResult is how a case has ended.
type previewResult struct {
	problem                          string // empty if it ended as predicted
	objects, races, waiting, refused int
	promises                         int  // of which of two objects goes first
	undecided                        bool // a webhook decides
}

// smaller returns the cases that have an object, a reference, a finalizer or a DELETE less.
func (w previewCase) smaller() []previewCase {
	var all []previewCase
	add := func(change func(s *previewCase)) {
		s := w
		s.objects, s.late, s.early, s.requests = slices.Clone(w.objects), slices.Clone(w.late), slices.Clone(w.early), slices.Clone(w.requests)
		if change(&s); len(s.requests) > 0 {
			all = append(all, s)
		}
	}
	for _, o := range w.objects {
		add(func(s *previewCase) { *s = s.without(o.id) })
	}
	for n, o := range w.objects {
		for i := range o.owners {
			add(func(s *previewCase) { s.objects[n].owners = slices.Delete(slices.Clone(o.owners), i, i+1) })
		}
		if o.held {
			add(func(s *previewCase) { s.objects[n].held = false })
		}
		if o.guard != "" {
			add(func(s *previewCase) { s.objects[n].guard = "" })
		}
	}
	if w.guard != "" {
		add(func(s *previewCase) { s.guard = "" })
	}
	for n := range w.late {
		add(func(s *previewCase) { s.late = slices.Delete(s.late, n, n+1) })
	}
	for n := range w.early {
		add(func(s *previewCase) { s.early = slices.Delete(s.early, n, n+1) })
	}
	for n := range w.requests {
		add(func(s *previewCase) { s.requests = slices.Delete(s.requests, n, n+1) })
	}
	return all
}

// shrink takes something away from a case as long as it fails.
func (c *previewCluster) shrink(t *testing.T, w previewCase, problem string) (previewCase, string) {
	t.Helper()
	for {
		found := false
		for _, smaller := range w.smaller() {
			if result := c.try(t, smaller); result.problem != "" {
				w, problem, found = smaller, result.problem, true
				break
			}
		}
		if !found {
			return w, problem
		}
	}
}

// try makes a case, predicts what its requests do, makes them, and compares.
func (c *previewCluster) try(t *testing.T, w previewCase) previewResult {
	t.Helper()
	made := c.make(t, w)
	before := c.read(t, made)
	requests := slices.DeleteFunc(made.requests(w.requests), func(r preview.Request) bool {
		return before.Object(r.UID) == nil // it went with an object that was deleted before
	})
	asked := c.foresee(t, before, requests, c.judge)
	for _, by := range undecided(asked) {
		if _, isDecider := deciderNamed(by); !isDecider {
			return previewResult{problem: "the preview leaves the decision to " + by}
		}
	}
	prediction := c.foresee(t, before, requests, knowing{c.judge})
	result := previewResult{objects: len(prediction.Outcomes), undecided: len(undecided(asked)) > 0}
	for _, o := range prediction.Outcomes {
		switch {
		case o.Race:
			result.races++
		case o.Fate == preview.Waiting:
			result.waiting++
		case o.Refusal != nil:
			result.refused++
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	departures := c.follow(t, ctx, made)
	answers := map[*inventory.Object][]error{}
	for _, r := range requests {
		o := before.Object(r.UID)
		answers[o] = append(answers[o], c.delete(t, o, r.Propagation))
	}
	// Only the collection is settled: another controller removes the finalizer of a
	// CustomResourceDefinition a moment later.
	until := time.Now().Add(patience / 6)
	for c.settle(t); ; c.settle(t) {
		after := c.read(t, made)
		result.problem = differences(before, prediction, after)
		if result.problem != "" && time.Now().Before(until) {
			continue
		}
		if result.problem != "" {
			result.problem += fmt.Sprintf("\nthe answers were %v", answers)
		}
		if result.problem == "" {
			result.problem = c.refused(t, prediction, answers)
		}
		if result.problem == "" {
			ordered := promises(before, prediction, w)
			result.promises, result.problem = len(ordered), departures.broken(t, ordered)
		}
		c.release(t, after)
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

// TestSmallerCases: each has something less, and leaves the case as it is.
func TestSmallerCases(t *testing.T) {
	size := func(w previewCase) int {
		n := len(w.objects) + len(w.late) + len(w.early) + len(w.requests) + len(w.guard)
		for _, o := range w.objects {
			n += len(o.owners)
			if o.held {
				n++
			}
			if o.guard != "" {
				n++
			}
		}
		return n
	}
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, seed))
		w := drawCase(r)
		w.drawGuards(r)
		before := w.String()
		smaller := w.smaller()
		for _, s := range smaller {
			if size(s) >= size(w) || len(s.requests) == 0 {
				t.Errorf("seed %d:\n%s\nis not smaller than\n%s", seed, s, w)
			}
		}
		if w.String() != before {
			t.Errorf("seed %d: the case has become\n%s\nfrom\n%s", seed, w, before)
		}
		if len(w.objects) > 1 && len(smaller) < 2 {
			t.Errorf("seed %d: only %d cases are smaller than\n%s", seed, len(smaller), w)
		}
	}
}
