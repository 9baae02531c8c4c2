package e2e

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/inventory"
	"github.com/coppice-dev/coppice/internal/ownership"
	"github.com/coppice-dev/coppice/internal/preview"
)

// previewCases and previewSeed are the random cases of TestPreviewIsWhatHappens.
//

var (
	previewCases = flag.Int("preview.cases", 60, "number of random cases that are previewed and deleted")
	previewSeed  = flag.Uint64("preview.seed", 1, "seed of the first case; the others follow")
)

// TestPreviewIsWhatHappens makes random cases, each in a namespace of its own, foretells what
// deletions in them do, makes the deletions and compares: what is gone, and with which owner
// references and finalizers the rest stays. What the preview calls a race is left out of the
// comparison, and must be rare. A case that fails is made again with fewer objects.
func TestPreviewIsWhatHappens(t *testing.T) {
	c := newPreviewCluster(t)
	objects, races, waiting := 0, 0, 0
	for n := range *previewCases {
		seed := *previewSeed + uint64(n)
		w := drawCase(rand.New(rand.NewPCG(seed, seed)))
		result := c.try(t, w)
		objects, races, waiting = objects+result.objects, races+result.races, waiting+result.waiting
		if result.problem != "" {
			smaller, problem := c.shrink(t, w, result.problem)
			t.Fatalf("-preview.seed=%d:\n%s\nin this case:\n%s", seed, problem, smaller)
		}
	}
	t.Logf("%d cases with %d objects, of which %d waited in the end and %d were in a race", *previewCases, objects, waiting, races)
	if *previewCases >= 20 && (waiting == 0 || races*10 > objects) {
		t.Errorf("%d of %d objects waited and %d were in a race: this shows little", waiting, objects, races)
	}
}

// previewCase is a case to be made in a namespace.
type previewCase struct {
	objects  []previewObject
	late     []previewEdge // references that are added once all objects are there; they make cycles
	early    []previewDelete
	requests []previewDelete
}

type previewObject struct {
	id     int
	kind   string
	owners []previewEdge
	held   bool
}

// previewEdge is an owner reference between objects, by id. from counts only in late ones.
type previewEdge struct {
	from, owner int
	blocks      bool
}

// previewDelete is a DELETE of an object. The ids below are those of what is around the objects.
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
	smaller := previewCase{early: deletes(w.early), requests: deletes(w.requests)}
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
		fmt.Fprintf(&text, "  %s o%d held=%t owners=%v\n", o.kind, o.id, o.held, o.owners)
	}
	fmt.Fprintf(&text, "  added later: %v\n  deleted before: %v\n  requests: %v", w.late, w.early, w.requests)
	return text.String()
}

// previewResult is how a case has ended.
type previewResult struct {
	problem                 string // empty if it ended as foretold
	objects, races, waiting int
}

// shrink removes objects from a case as long as it fails.
func (c *previewCluster) shrink(t *testing.T, w previewCase, problem string) (previewCase, string) {
	t.Helper()
	for n := 0; n < len(w.objects); {
		smaller := w.without(w.objects[n].id)
		if len(smaller.requests) == 0 {
			n++
			continue
		}
		if result := c.try(t, smaller); result.problem != "" {
			w, problem = smaller, result.problem
		} else {
			n++
		}
	}
	return w, problem
}

// try makes a case, foretells what its requests do, makes them, and compares.
func (c *previewCluster) try(t *testing.T, w previewCase) previewResult {
	t.Helper()
	made := c.make(t, w)
	before := c.read(t, made)
	requests := made.requests(w.requests)
	foretold := preview.New(before).Predict(requests, preview.Options{Now: time.Now()})
	result := previewResult{objects: len(foretold.Outcomes)}
	for _, o := range foretold.Outcomes {
		if o.Race {
			result.races++
		} else if o.Fate == preview.Waiting {
			result.waiting++
		}
	}
	for n, d := range w.requests {
		c.delete(t, before.Object(requests[n].UID), d.policy)
	}
	// What is settled is the collection: the finalizer of a CustomResourceDefinition is removed by
	// another controller, a moment later.
	until := time.Now().Add(patience / 6)
	for c.settle(t); ; c.settle(t) {
		after := c.read(t, made)
		if result.problem = differences(before, foretold, after); result.problem == "" || time.Now().After(until) {
			c.release(t, after)
			return result
		}
	}
}

// differences describes where what was foretold is not what has become of the objects of before.
func differences(before *inventory.Inventory, foretold preview.Prediction, after *inventory.Inventory) string {
	outcomes := map[ownership.UID]preview.Outcome{}
	for _, o := range foretold.Outcomes {
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
			problems = append(problems, fmt.Sprintf("%s %s is %s; foretold was %s (%s)", o.Kind, o.Name, got, want, outcome.Fate))
		}
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
