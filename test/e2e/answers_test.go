package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/answer"
	"github.com/coppice-dev/coppice/internal/tools/explain"
	"github.com/coppice-dev/coppice/internal/tools/finalizerowner"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
	"github.com/coppice-dev/coppice/internal/tools/reader"
	"github.com/coppice-dev/coppice/internal/tools/web/api"
)

// TestCollectorAnswersAsTheCluster makes random cases, and compares the answers of the running collector,
// from its graph and the few objects that it reads, with the answers from the whole cluster: previews with
// each policy, also previews that read only the objects' namespaces where that is enough, and, after the
// deletions, explanations of all remaining objects. It makes a fifth of the cases of
// TestPreviewIsWhatHappens.
func TestCollectorAnswersAsTheCluster(t *testing.T) {
	c := ownPreviewCluster(t, "answers", byHand)
	if c.foreign {
		t.Skip("no collector of ours runs there")
	}
	sufficient := 0
	for n := range *previewCases / 5 {
		seed := *previewSeed + uint64(n)
		w := drawCase(rand.New(rand.NewPCG(seed, seed)))
		made := c.make(t, w)
		before := c.readAll(t)
		var uids []ownership.UID
		for _, r := range made.requests(w.requests) {
			if before.Object(r.UID) != nil && !slices.Contains(uids, r.UID) {
				uids = append(uids, r.UID)
			}
		}
		if len(uids) == 0 {
			continue // gone with an object that was deleted before
		}
		for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan} {
			if diff := cmp.Diff(c.predict(t, before, uids, policy), c.askPreview(t, uids, policy)); diff != "" {
				t.Fatalf("-preview.seed=%d: a preview with policy %s (-cluster +collector):\n%s\nin this case:\n%s", seed, policy, diff, w)
			}
			confined := c.readConfined(t, before, uids)
			if confined.Within != nil {
				sufficient++
			}
			if diff := cmp.Diff(c.predict(t, before, uids, policy), c.predict(t, confined, uids, policy)); diff != "" {
				t.Fatalf("-preview.seed=%d: a preview with policy %s (-cluster +namespaces of the objects):\n%s\nin this case:\n%s", seed, policy, diff, w)
			}
		}
		for _, r := range made.requests(w.requests) {
			if o := before.Object(r.UID); o != nil {
				c.delete(t, o, r.Propagation)
			}
		}
		c.settle(t)
		if problem := c.compareExplanations(t, before); problem != "" {
			t.Fatalf("-preview.seed=%d: %s\nin this case:\n%s", seed, problem, w)
		}
		c.release(t, c.read(t, made))
	}
	t.Logf("%d of %d previews needed no more than the namespaces of the objects", sufficient, 3**previewCases/5)
	if sufficient == 0 {
		t.Error("no preview was made from the namespaces of the objects")
	}
}

// readConfined reads the part of a cluster that the tools read for a question about objects: their
// namespaces, or the namespaces themselves, then objects with cluster-scoped owners, and further kinds that
// the question needs.
func (c *previewCluster) readConfined(t *testing.T, inv *inventory.Inventory, uids []ownership.UID) *inventory.Inventory {
	t.Helper()
	var scope reader.Scope
	for _, uid := range uids {
		namespace := inv.Object(uid).Namespace
		if namespace == "" {
			scope.Beyond = true
			namespace = inv.Object(uid).Name // if it is one
		}
		scope.Namespaces = append(scope.Namespaces, namespace)
	}
	confined, err := reader.Read(t.Context(), c.config, reader.Options{
		Now: time.Now(), Pods: true, Scope: func(*inventory.Inventory) reader.Scope { return scope },
		Missing: func(read *inventory.Inventory) inventory.Missing {
			return read.Missing(uids, finalizerowner.IsBuiltIn)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return confined
}

// readAll reads the whole cluster, as the tools do.
func (c *previewCluster) readAll(t *testing.T) *inventory.Inventory {
	t.Helper()
	inv, err := reader.Read(t.Context(), c.config, reader.Options{Now: time.Now(), Pods: true})
	if err != nil {
		t.Fatal(err)
	}
	return inv
}

// answers returns answers from an inventory of the cluster.
func (c *previewCluster) answers(t *testing.T, inv *inventory.Inventory) *answer.Cluster {
	t.Helper()
	facts, err := reader.NewFacts(c.config)
	if err != nil {
		t.Fatal(err)
	}
	return &answer.Cluster{Inventory: inv, Facts: facts, Now: time.Now()}
}

// predict previews from the whole cluster.
func (c *previewCluster) predict(t *testing.T, inv *inventory.Inventory, uids []ownership.UID, policy metav1.DeletionPropagation) preview.Report {
	t.Helper()
	return withoutEvidence(c.answers(t, inv).Preview(t.Context(), preview.RequestsOf(uids, policy), false).Report(inv))
}

// askPreview asks the collector for a preview.
func (c *previewCluster) askPreview(t *testing.T, uids []ownership.UID, policy metav1.DeletionPropagation) preview.Report {
	t.Helper()
	request := c.kube.CoreV1().RESTClient().Get().AbsPath(api.Preview).Param("propagationPolicy", string(policy))
	for _, uid := range uids {
		request.Param("uid", string(uid))
	}
	answer, err := request.DoRaw(t.Context())
	if err != nil {
		t.Fatalf("%v: %s", err, answer)
	}
	var report preview.Report
	if err := json.Unmarshal(answer, &report); err != nil {
		t.Fatal(err)
	}
	return withoutEvidence(report)
}

// withoutEvidence removes from a report the evidence for the controller of a finalizer: the collector does
// not read all other objects with the finalizer. It also removes the unread kinds, which depend on the rest
// of the cluster.
func withoutEvidence(r preview.Report) preview.Report {
	r.Unread = nil
	for n := range r.Objects {
		for i := range r.Objects[n].Waits {
			if by := r.Objects[n].Waits[i].ServedBy; by != nil {
				by.Evidence = nil
			}
		}
	}
	return r
}

// compareExplanations describes where the collector explains an object of before that is still there
// otherwise than the cluster does. Another controller may be at work: they need to agree once.
func (c *previewCluster) compareExplanations(t *testing.T, before *inventory.Inventory) string {
	t.Helper()
	until := time.Now().Add(patience / 6)
	for {
		problem := c.explanationsDiffer(t, before)
		if problem == "" || time.Now().After(until) {
			return problem
		}
	}
}

func (c *previewCluster) explanationsDiffer(t *testing.T, before *inventory.Inventory) string {
	t.Helper()
	inv := c.readAll(t)
	answers := c.answers(t, inv)
	for _, o := range inv.Objects {
		if before.Object(o.UID) == nil || o.Phase == ownership.Active {
			continue
		}
		answer, err := c.kube.CoreV1().RESTClient().Get().AbsPath(api.Explain).Param("uid", string(o.UID)).DoRaw(t.Context())
		var told api.Explanations
		if err != nil || json.Unmarshal(answer, &told) != nil || len(told.Items) != 1 {
			return string(answer)
		}
		var want explain.Explanation
		_ = answers.Explain(t.Context(), []ownership.UID{o.UID}, func(x explain.Explanation) error {
			want = x
			return nil
		})
		if diff := cmp.Diff(explain.Outline(want.Waits), explain.Outline(told.Items[0].Waits)); diff != "" {
			return "an explanation of " + want.Object.String() + " (-cluster +collector):\n" + diff
		}
	}
	answer, err := c.kube.CoreV1().RESTClient().Get().AbsPath(api.Deletions).DoRaw(t.Context())
	var told api.DeletionList
	if err != nil || json.Unmarshal(answer, &told) != nil {
		return string(answer)
	}
	if diff := cmp.Diff(outlineOf(answers.Deletions(t.Context())), outlineOf(told.Items)); diff != "" {
		return "all deletions (-cluster +collector):\n" + diff
	}
	return ""
}

// outlineOf describes what each group of deletions waits for, one group per line.
func outlineOf(groups []explain.Group) []string {
	lines := make([]string, 0, len(groups))
	for n := range groups {
		var objects []string
		for _, o := range groups[n].Objects {
			objects = append(objects, o.String())
		}
		slices.Sort(objects)
		lines = append(lines, fmt.Sprint(explain.Outline([]explain.Wait{groups[n].Leaf}), objects))
	}
	slices.Sort(lines)
	return lines
}
