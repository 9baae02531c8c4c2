package preview_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// Protected objects stay, and their waiting owners hang (R28); an object that outlives others is deleted after them.
func TestR28_ProtectedObjectsStayInAPreview(t *testing.T) {
	for name, test := range map[string]struct {
		lines    []string
		requests []preview.Request
		left     []string // names of the existing ConfigMaps that are listed as outlived
		want     []string
	}{
		"a request": {
			[]string{"ConfigMap a always", "ConfigMap b cascading"},
			requests("Background", "a", "b"), nil,
			[]string{"a Kept by owners [] refused", "b Deleted by User"},
		},
		"the collector": {
			[]string{"ConfigMap a", "ConfigMap b < a cascading", "ConfigMap c < b", "ConfigMap d < a"},
			requests("Background", "a"), nil,
			[]string{"a Deleted by User", "b Kept by owners [] protected", "d Deleted by Collector"},
		},
		"foreground": {
			[]string{"ConfigMap a", "ConfigMap b < a! always", "ConfigMap c < a!"},
			requests("Foreground", "a"), nil,
			[]string{"a Waiting by User for Dependents foregroundDeletion[b]", "b Kept by owners [] protected", "c Deleted by Collector"},
		},
		"a namespace": {
			[]string{"Namespace shop", "ConfigMap a always", "ConfigMap b", "Role r"},
			requests("Background", "shop"), nil,
			[]string{"a Kept by owners [] protected", "b Deleted by NamespaceController", "shop Waiting by User for Contents kubernetes[a r]"},
		},
		"a definition": {
			[]string{"CustomResourceDefinition widgets.example.com # customresourcecleanup.apiextensions.k8s.io", "Widget a cascading", "Widget b"},
			requests("Background", "widgets.example.com"), nil,
			[]string{
				"a Kept by owners [] protected", "b Deleted by Server",
				"widgets.example.com Waiting by User for Contents customresourcecleanup.apiextensions.k8s.io[a]",
			},
		},
		"the others go with it": {
			[]string{"ConfigMap a", "ConfigMap b < a", "ConfigMap db < a outlives"},
			requests("Background", "a"),
			[]string{"b"},
			[]string{"a Deleted by User", "b Deleted by Collector", "db Deleted by Collector"},
		},
		"the others go later": {
			[]string{"ConfigMap a", "ConfigMap y < a", "ConfigMap z < y", "ConfigMap db < a outlives"},
			requests("Background", "a"),
			[]string{"z"},
			[]string{"a Deleted by User", "db Deleted by Collector", "y Deleted by Collector", "z Deleted by Collector"},
		},
		"the others go with it, and nobody looks": {
			[]string{"ConfigMap a", "ConfigMap b < a", "ConfigMap db < a outlives"},
			requests("Background", "a"), nil,
			[]string{"a Deleted by User", "b Deleted by Collector", "db Kept by owners [] protected"},
		},
		"the others stay": {
			[]string{"ConfigMap a", "ConfigMap b", "ConfigMap db < a outlives"},
			requests("Background", "a"),
			[]string{"b"},
			[]string{"a Deleted by User", "db Kept by owners [] protected"},
		},
		"being deleted already": {
			[]string{"Namespace shop", "ConfigMap a always deleting # example.com/hold"},
			requests("Background", "shop"), nil,
			[]string{"shop Waiting by User for Contents kubernetes[a]"},
		},
	} {
		protects := func(o *inventory.Object) inventory.Fact[inventory.Protection] {
			var left []protection.Remaining
			for _, name := range test.left {
				left = append(left, protection.Remaining{Outlived: protection.Outlived{APIVersion: "v1", Kind: "ConfigMap", Name: name}})
			}
			p := protection.Protection{Label: o.Labels.Get(protection.Label), Mode: protection.Mode(o.Labels.Get(protection.Label))}
			if name == "the others go with it, and nobody looks" {
				p.Unchecked = "the object is older"
			}
			return inventory.Fact[inventory.Protection]{Value: inventory.Protection{Protection: p, Enforced: true, Remaining: left}}
		}
		inv := cluster(t, test.lines...)
		w := preview.New(inv)
		prediction := w.Predict(test.requests, preview.Options{Now: now(), Protection: protects})
		got := told(prediction)
		refused := 0
		for _, outcome := range got {
			if strings.HasSuffix(outcome, " protected") || strings.HasSuffix(outcome, " refused") {
				refused++
			}
		}
		if report := prediction.Report(inv); report.Refused != refused {
			t.Errorf("%s: the report counts %d refused objects, want %d", name, report.Refused, refused)
		}
		slices.Sort(test.want)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		unprotected := func(*inventory.Object) inventory.Fact[inventory.Protection] {
			return inventory.Fact[inventory.Protection]{}
		}
		for _, o := range w.Predict(test.requests, preview.Options{Now: now(), Protection: unprotected}).Outcomes {
			if o.Protected != "" || o.Refused != "" {
				t.Errorf("%s: %s is protected by a server that does not protect", name, o.Object.UID)
			}
		}
	}
}
