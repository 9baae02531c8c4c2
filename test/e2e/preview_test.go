package e2e

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// These choose the random cases of TestPreviewIsWhatHappens.

var (
	previewCases = flag.Int("preview.cases", 20, "number of random cases that are previewed and deleted")
	previewBlind = flag.Int("preview.blind", 1, "number of cases of each kind in which something cannot be read")
	previewSeed  = flag.Uint64("preview.seed", 140, "seed of the first case; the others follow")
)

// TestPreviewIsWhatHappens makes random cases, each in its own namespace, predicts the effect of
// deletions, makes the deletions and compares: the removed objects, the owner references and
// finalizers of the remaining ones, who refuses to delete them, and the order of owners and dependents,
// where the preview promises one. Races, as the preview reports them, are left out of the comparison,
// and must be rare; so must be cases in which a webhook decides, whose answer the comparison knows. A
// failed case is made again with fewer objects. The cases in which something cannot be read come last,
// one at a time: they are made again by -preview.cases=0 -preview.blind=1 and their seed.
func TestPreviewIsWhatHappens(t *testing.T) {
	c := ownPreviewCluster(t, "preview")
	c.prepare(t, *previewCases+2)
	c.guard(t)
	all := previewTally{nodes: map[lostNode]int{}, blind: map[blindness]int{}}
	var late []attempt // that wait for the pod garbage collector
	finish := func(a attempt) {
		result := c.finish(t, a)
		all.add(a.previewCase, result)
		if result.problem == "" {
			return
		}
		smaller, problem := a.previewCase, result.problem
		if !c.foreign && a.blind == "" { // there, and in such cases, each try takes a minute
			smaller, problem = c.shrink(t, a.previewCase, result.problem)
		}
		t.Fatalf("-preview.seed=%d, blind=%q:\n%s\nin this case:\n%s", a.seed, a.blind, problem, smaller)
	}
	for n := range *previewCases {
		seed := *previewSeed + uint64(n)
		a := c.start(t, drawPreview(seed))
		a.seed = seed
		if late = append(late, a); !a.node.waitsForPods() {
			late = late[:len(late)-1]
			finish(a)
		}
		if len(late) == mostLate || n == *previewCases-1 {
			for _, a := range late {
				finish(a)
			}
			late = nil
		}
	}
	c.versioned = true
	c.prepare(t, len(blindKinds)**previewBlind+2)
	for n := range *previewBlind {
		for _, sorts := range blindKinds {
			seed := *previewSeed + uint64(n)
			a := c.start(t, drawBlind(seed, sorts))
			a.seed = seed
			finish(a)
		}
	}
	t.Log(all)
	if *previewCases >= 20 && all.showsLittle() {
		t.Error("this shows little")
	}
}

// mostLate is the number of cases that wait for the pod garbage collector together.
const mostLate = 8

// drawPreview draws the case of a seed.
func drawPreview(seed uint64) previewCase {
	r := rand.New(rand.NewPCG(seed, seed))
	w := drawCase(r)
	w.drawGuards(r)
	w.drawNode(r)
	return w
}

// previewCase is a case to be made in a namespace.
type previewCase struct {
	objects  []previewObject
	late     []previewEdge // references that are added once all objects are there; they make cycles
	early    []previewDelete
	requests []previewDelete
	large    bool      // the size of the namespace, for guards with parameters
	node     lostNode  // of all pods; empty for most
	blind    blindness // empty for most
	guard    string    // of the namespace
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
	theNode       = -3
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

// String describes the case.
func (w previewCase) String() string {
	var text strings.Builder
	for _, o := range w.objects {
		fmt.Fprintf(&text, "  %s o%d held=%t protect=%s guard=%s owners=%v\n", o.kind, o.id, o.held, o.protect, o.guard, o.owners)
	}
	fmt.Fprintf(&text, "  added later: %v\n  deleted before: %v\n  requests: %v\n  large=%t guard=%s node=%s blind=%s", w.late, w.early, w.requests, w.large, w.guard, w.node, w.blind)
	return text.String()
}
