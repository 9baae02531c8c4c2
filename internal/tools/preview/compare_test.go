package preview_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/finalizerowner"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// TestChangesNameOnlyDifferences: only the differences between two previews are named.
func TestChangesNameOnlyDifferences(t *testing.T) {
	before := []string{"ConfigMap a", "ConfigMap b < a", "ConfigMap c < a"}
	tests := []struct {
		name string
		now  []string
		want []string
	}{
		{"nothing", before, nil},
		{"an object more", append(slices.Clone(before), "ConfigMap d < b"), []string{"ConfigMap shop/d is new: deleted in step 2, by the garbage collector"}},
		{"an object less", before[:2], []string{"ConfigMap shop/c is no longer affected, or gone"}},
		{
			"a finalizer",
			[]string{"ConfigMap a", "ConfigMap b < a # example.com/hold", "ConfigMap c < a"},
			[]string{
				"ConfigMap shop/b: waiting, by the garbage collector; waits for finalizer example.com/hold, " +
					"before: deleted, by the garbage collector",
			},
		},
		{
			"another owner",
			[]string{"ConfigMap a", "ConfigMap b < a", "ConfigMap c < a d", "ConfigMap d"},
			[]string{"ConfigMap shop/c: detached; kept by ConfigMap shop/d; loses ConfigMap shop/a, before: deleted, by the garbage collector"},
		},
	}
	report := func(lines []string) preview.Report {
		inv := cluster(t, lines...)
		return preview.New(inv).Predict(requests("Background", "a"), preview.Options{Now: now()}).Report(inv)
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := preview.Changes(report(before), report(test.now)); !slices.Equal(got, test.want) {
				t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(test.want, "\n  "))
			}
		})
	}
	t.Run("a write", func(t *testing.T) {
		later := report(before)
		later.Digest, later.Objects[1].ResourceVersion = "another", "17"
		want := []string{"ConfigMap shop/b was written: version 17, before: 2"}
		if got := preview.Changes(report(before), later); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// Each finalizer that an object waits for has its controller, and whether the deletion also deletes that controller.
func TestFinalizersHaveTheirControllers(t *testing.T) {
	answers := map[string]finalizerowner.Answer{
		"example.com/inside":  {Controller: "Deployment shop/b", Workload: "b", State: finalizerowner.Alive},
		"example.com/outside": {Controller: "Deployment shop/x", Workload: "x", State: finalizerowner.Alive},
		"example.com/asleep":  {Controller: "Deployment shop/x", Workload: "x", State: finalizerowner.ScaledToZero},
		"example.com/nobody":  {State: finalizerowner.Gone},
	}
	says := map[string]string{
		"example.com/inside":  "(served by Deployment shop/b, which this deletion takes away, too: it may hang)",
		"example.com/outside": "(served by Deployment shop/x, which works)",
		"example.com/asleep":  "(served by Deployment shop/x, which is scaled to 0: it will hang)",
		"example.com/nobody":  "(nobody serves it: it will hang)",
	}
	for finalizer, want := range says {
		inv := cluster(t, "ConfigMap a # "+finalizer, "ConfigMap b", "ConfigMap x")
		p := preview.New(inv).Predict(requests("Background", "a", "b"), preview.Options{Now: now()})
		digest := p.Digest
		p.AddOwners(func(o *inventory.Object, f string) finalizerowner.Answer {
			if o.UID != ownership.UID("a") {
				t.Errorf("it asks about %s", o.UID)
			}
			return answers[f]
		})
		if text := p.Report(inv).String(); !strings.Contains(text, "waits for finalizer "+finalizer+" "+want) {
			t.Errorf("%s: got\n%s", finalizer, text)
		}
		if p.Digest != digest {
			t.Error("the digest depends on how controllers are")
		}
	}
}
