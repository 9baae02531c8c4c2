package explain_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/explain"
)

// mostBytes is the limit of an explanation in these tests, in JSON and in text.
const mostBytes = 512 << 10

func bounded(t *testing.T, x explain.Explanation) (text string) {
	t.Helper()
	encoded, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	if text = x.Text(now); len(encoded) > mostBytes || len(text) > mostBytes {
		t.Errorf("%d bytes of JSON and %d bytes of text, at most %d", len(encoded), len(text), mostBytes)
	}
	return text
}

func contains(t *testing.T, text string, wanted ...string) {
	t.Helper()
	for _, want := range wanted {
		if !strings.Contains(text, want) {
			t.Errorf("does not say %q:\n%.3000s", want, text)
		}
	}
}

func numbered(n int, format string) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(format, i)
	}
	return all
}

func TestFinalizersAreCounted(t *testing.T) {
	all := append(numbered(60_000, "example.com/hold-%d"), ownership.FinalizerForeground)
	w := newCluster(t).lines("ConfigMap shop/c deleted=5h finalizers=" + strings.Join(all, ","))
	x := w.explain(w.inventory.Objects[0].UID)
	contains(t, bounded(t, x), "and 59936 more finalizers")
	if x.State != explain.Unknown && x.State != explain.Stuck {
		t.Errorf("it is %s, although not all finalizers were looked at", x.State)
	}
	if !slices.ContainsFunc(x.Waits, func(w explain.Wait) bool { return w.Finalizer == ownership.FinalizerForeground }) {
		t.Error("the collector's finalizer, the last one, is not explained")
	}

	w = newCluster(t).lines("Namespace shop deleted=5h spec=" + strings.Join(numbered(30_000, "example.com/spec-%d"), ","))
	contains(t, bounded(t, w.explain(w.inventory.Objects[0].UID)), "and 29936 more finalizers in its spec")
}

// A long chain is cut in the middle: its end is the reason.
func TestLongChainsShowTheirEnd(t *testing.T) {
	const length = 4000
	var lines strings.Builder
	for n := range length {
		owner := ""
		if n > 0 {
			owner = fmt.Sprintf(" owner=v1:ConfigMap:c%d:blocking", n-1)
		}
		fmt.Fprintf(&lines, "ConfigMap shop/c%d deleted=5h finalizers=foregroundDeletion%s\n", n, owner)
	}
	fmt.Fprintf(&lines, "ConfigMap shop/end deleted=5h finalizers=example.com/the-end owner=v1:ConfigMap:c%d:blocking\n", length-1)
	w := newCluster(t).lines(lines.String())
	x := w.explain(w.inventory.Objects[0].UID)
	text := bounded(t, x)
	contains(t, text, "example.com/the-end", "more")
	for line := range strings.Lines(text) {
		if indented := len(line) - len(strings.TrimLeft(line, " ")); indented > 2*40 {
			t.Fatalf("a line is indented by %d: %.200s", indented, line)
		}
	}
	if leaves := x.Leaves(); len(leaves) != 1 || leaves[0].Finalizer != "example.com/the-end" {
		t.Errorf("%d leaves, want the end of the chain", len(leaves))
	}
}

func TestWideTreesAreCounted(t *testing.T) {
	lines := "Namespace shop deleted=5h spec=kubernetes\n"
	for n := range 300 {
		lines += fmt.Sprintf("ConfigMap shop/c%d deleted=5h finalizers=%s\n", n, strings.Join(numbered(60, fmt.Sprintf("example.com/%d-%%d", n)), ","))
	}
	w := newCluster(t).lines(lines)
	contains(t, bounded(t, w.explain(w.inventory.Objects[0].UID)), "and 292 more")
	groups := w.explainer().All()
	for _, g := range groups {
		if len(g.Objects)+g.More > 301 {
			t.Errorf("%d+%d objects wait for %s", len(g.Objects), g.More, g.Leaf.Finalizer)
		}
	}
}

func TestLongTextsAreCut(t *testing.T) {
	long := strings.Repeat("long", 1<<18)
	w := newCluster(t).lines("Namespace shop deleted=5h spec=kubernetes condition=NamespaceDeletionContentFailure:5h:" + long)
	contains(t, bounded(t, w.explain(w.inventory.Objects[0].UID)), "(1048")

	w = newCluster(t).lines("ConfigMap shop/c")
	o := w.inventory.Objects[0]
	for n := range 3000 {
		o.Owners = append(o.Owners, ownership.Reference{APIVersion: "example.com/v1", Kind: fmt.Sprint("Thing", n, long[:300]), Name: "x", UID: ownership.UID(fmt.Sprint(n))})
	}
	contains(t, bounded(t, w.explain(o.UID)), "and 2992 more")

	w = newCluster(t).lines("ConfigMap shop/c deleted=5h finalizers=example.com/" + long)
	bounded(t, w.explain(w.inventory.Objects[0].UID))
}

func TestGroupsCountTheirObjects(t *testing.T) {
	lines := ""
	for n := range 1500 {
		lines += fmt.Sprintf("ConfigMap shop/c%d deleted=5h finalizers=example.com/hold\n", n)
	}
	groups := newCluster(t).lines(lines).explainer().All()
	if len(groups) != 1 || len(groups[0].Objects) != 1000 || groups[0].More != 500 {
		t.Fatalf("%d groups, the first with %d objects and %d more", len(groups), len(groups[0].Objects), groups[0].More)
	}
	contains(t, explain.TextOf(groups, now), "1500 objects", "and 1492 more")
}
