package e2e

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/apiserver/backup"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
	"github.com/coppice-dev/coppice/internal/tools/restore"
	"github.com/coppice-dev/coppice/internal/tools/undo"
)

var (
	undoCases   = flag.Int("undo.cases", 40, "number of random cascades that are undone")
	undoObjects = flag.Int("undo.objects", 0, "number of objects that TestUndoScale undoes")
	undoSeed    = flag.Uint64("undo.seed", 1, "seed of the first cascade; the others follow")
)

// TestR29_RandomCascades makes the random cases of the previews, keeps the deleted objects, releases all held objects,
// and undoes the deletion; every third time the undo is interrupted, and run again. In the end all objects exist
// unchanged, with references to their owners; and none of them is collected.
func TestR29_RandomCascades(t *testing.T) {
	c := ownPreviewCluster(t, "undo", byHand)
	c.prepare(t, *undoCases)
	undone, relinked, interrupted := 0, 0, 0
	for n := range *undoCases {
		seed := *undoSeed + uint64(n)
		r := rand.New(rand.NewPCG(seed, seed))
		w := drawCase(r)
		w.early = nil // objects that are deleted before are not undone
		for n := range w.objects {
			w.objects[n].protect = "" // protected objects stay
		}
		result := c.undoCase(t, w, r)
		if result.problem != "" {
			t.Fatalf("-undo.seed=%d:\n%s\nin this case:\n%s", seed, result.problem, w)
		}
		undone, relinked, interrupted = undone+result.undone, relinked+result.relinked, interrupted+result.interrupted
	}
	t.Logf("%d cascades from seed %d on: %d objects made again with %d references, %d undos were interrupted", *undoCases, *undoSeed, undone, relinked, interrupted)
	if *undoCases >= 20 && (undone < 2**undoCases || relinked == 0 || interrupted == 0) {
		t.Error("this shows little")
	}
}

type undoResult struct {
	problem                       string
	undone, relinked, interrupted int
}

// undoCase makes a case, deletes, undoes, and compares.
func (c *previewCluster) undoCase(t *testing.T, w previewCase, r *rand.Rand) (result undoResult) {
	t.Helper()
	m := c.make(t, w)
	c.fill(t, m, r)
	before, inv := c.whole(t, m), c.read(t, m)
	options := c.options()
	options.Released = func(*inventory.Object, string) bool { return true }
	requests := m.requests(w.requests)
	prediction := preview.New(inv).Predict(requests, options)
	server, err := restore.NewServer(c.config, newJournal(t))
	if err != nil {
		t.Fatal(err)
	}
	kinds, err := server.Kinds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wanted, unserved := backup.Of(prediction.Report(inv), kinds)
	kept, missed, err := backup.Read(t.Context(), server.Dynamic(), wanted)
	if err != nil || len(unserved)+len(missed) > 0 {
		t.Fatal(err, unserved, missed)
	}
	for _, q := range requests {
		c.delete(t, inv.Object(q.UID), q.Propagation)
	}
	c.settle(t)
	c.awaitGone(t, m, prediction)
	stop := -1
	if r.IntN(3) == 0 {
		stop = r.IntN(len(kept) + 1)
		result.interrupted++
	}
	report := c.undo(t, server, kept, stop)
	if stop >= 0 {
		report = c.undo(t, server, kept, -1)
	}
	c.settle(t)
	after := c.whole(t, m)
	result.undone = len(report.Objects)
	result.problem = undoProblem(before, after, &result.relinked)
	if result.problem == "" && report.Missing() > 0 {
		result.problem = report.String()
	}
	c.release(t, c.read(t, m))
	return result
}

// fill puts something into the objects of a case.
func (c *previewCluster) fill(t *testing.T, m madeCase, r *rand.Rand) {
	t.Helper()
	for _, o := range c.read(t, m).Objects {
		content := map[string]string{
			"ConfigMap": `"data":{"x":"%d"}`, "Secret": `"stringData":{"x":"%d"}`, "Role": `"rules":[{"apiGroups":[""],"resources":["r%d"],"verbs":["get"]}]`,
		}[o.Kind.Kind]
		if content == "" {
			content = `"metadata":{"labels":{"x":"%d"}}`
		}
		patch := fmt.Sprintf("{"+content+"}", r.IntN(1000))
		if _, err := c.in(o.Resource, o.Namespace).Patch(t.Context(), o.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func newJournal(t *testing.T) *restore.Journal {
	t.Helper()
	journal, err := restore.OpenJournal(filepath.Join(t.TempDir(), "undone.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return journal
}

// undo carries an undo out, and interrupts it after some objects, unless that is less than 0.
func (c *previewCluster) undo(t *testing.T, server *restore.Server, kept []undo.Kept, stop int) undo.Report {
	t.Helper()
	found, err := server.Survey(t.Context(), kept)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if stop == 0 {
		cancel()
	}
	plan := undo.New(kept, found, undo.Options{})
	run := restore.Run{Server: server, Kinds: found.Kinds, Progress: func(done, _ int) {
		if done == stop {
			cancel()
		}
	}}
	if err := run.Run(ctx, plan); err != nil && stop < 0 {
		t.Fatal(err)
	}
	return plan.Report()
}

// awaitGone lets everything go that is held, and waits until all is gone that goes.
func (c *previewCluster) awaitGone(t *testing.T, m madeCase, prediction preview.Prediction) {
	t.Helper()
	eventually.Holds(t, "what goes is gone", func() bool {
		now := c.read(t, m)
		c.release(t, now)
		return !slices.ContainsFunc(prediction.Outcomes, func(o preview.Outcome) bool {
			there := now.Object(o.Object.UID)
			return there != nil && (o.Fate == preview.Deleted || there.Due != 0) && (!o.Race || there.Due != 0)
		})
	})
	c.settle(t)
}

// whole lists the objects of a case.
func (c *previewCluster) whole(t *testing.T, m madeCase) map[string]*unstructured.Unstructured {
	t.Helper()
	all := map[string]*unstructured.Unstructured{}
	for _, o := range c.read(t, m).Objects {
		whole, err := c.in(o.Resource, o.Namespace).Get(t.Context(), o.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		all[o.Kind.String()+" "+o.Name] = whole
	}
	return all
}

// undoProblem compares the objects before and after, and counts the references to restored owners.
func undoProblem(before, after map[string]*unstructured.Unstructured, relinked *int) string {
	names := map[types.UID]string{}
	for name, o := range before {
		names[o.GetUID()] = name
	}
	var problems []string
	for name, was := range before {
		is := after[name]
		if is == nil {
			problems = append(problems, name+" is not there")
			continue
		}
		if from := is.GetAnnotations()[undo.Annotation]; is.GetUID() != was.GetUID() && from != string(was.GetUID()) {
			problems = append(problems, fmt.Sprintf("%s was made from %q, not from %s", name, from, was.GetUID()))
		}
		if is.GetDeletionTimestamp() != nil {
			problems = append(problems, name+" is being deleted")
		}
		want := map[string]metav1.OwnerReference{}
		for _, owner := range was.GetOwnerReferences() {
			if now := after[names[owner.UID]]; now != nil {
				if now.GetUID() != owner.UID {
					*relinked++
				}
				owner.UID = now.GetUID()
			}
			want[owner.Kind+" "+owner.Name] = owner
		}
		got := map[string]metav1.OwnerReference{}
		for _, owner := range is.GetOwnerReferences() {
			got[owner.Kind+" "+owner.Name] = owner
		}
		if !reflect.DeepEqual(got, want) || len(got) != len(is.GetOwnerReferences()) {
			problems = append(problems, fmt.Sprintf("%s has the owners %v, and should have %v", name, is.GetOwnerReferences(), want))
		}
		if a, b := contentOf(was), contentOf(is); !reflect.DeepEqual(a, b) {
			problems = append(problems, fmt.Sprintf("%s is\n%v\nand was\n%v", name, b, a))
		}
	}
	slices.Sort(problems)
	return strings.Join(problems, "\n")
}

// contentOf returns an object without the fields of others: status, and metadata except labels.
func contentOf(o *unstructured.Unstructured) map[string]any {
	content := o.DeepCopy()
	delete(content.Object, "status")
	content.Object["metadata"] = map[string]any{"name": o.GetName(), "namespace": o.GetNamespace(), "labels": o.GetLabels()}
	return content.Object
}

// TestUndoScale undoes a cascade of -undo.objects objects, and logs the time.
func TestUndoScale(t *testing.T) {
	if *undoObjects == 0 {
		t.Skip("-undo.objects=10000 makes so many objects")
	}
	c := ownPreviewCluster(t, "undoscale", byHand)
	m := c.make(t, previewCase{objects: []previewObject{{id: 0, kind: "ConfigMap"}}})
	w := previewCase{objects: []previewObject{{id: 0, kind: "ConfigMap"}}}
	var kept []undo.Kept
	r := m.resource("ConfigMap")
	for n := range *undoObjects {
		o := c.create(t, r, map[string]any{
			"name": fmt.Sprintf("d%d", n), "namespace": m.namespace, "ownerReferences": []any{m.reference(w, previewEdge{owner: 0})},
		}, nil)
		kept = append(kept, undo.Kept{Resource: r.GroupVersionResource, Object: o})
	}
	root, err := c.in(r, m.namespace).Get(t.Context(), "o0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kept = append(kept, undo.Kept{Resource: r.GroupVersionResource, Object: root, Requested: true})
	c.delete(t, observedObject(root, r), metav1.DeletePropagationBackground)
	c.settle(t)
	server, err := restore.NewServer(c.config, newJournal(t))
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	report := c.undo(t, server, kept, -1)
	took := time.Since(start)
	c.settle(t)
	if report.Missing() > 0 || len(c.read(t, m).Objects) < len(kept) {
		t.Errorf("%d objects are there: %v", len(c.read(t, m).Objects), report.Counts)
	}
	t.Logf("%d objects were made again in %s", len(kept), took)
}
