package preview_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/collect/namespaces"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// Instances that cannot be converted stay, and so does what waits for them. A webhook without endpoints refuses where a
// conversion is certain; otherwise it counts what the server answers to a read of the object.
func TestConversionThatFails(t *testing.T) {
	const failed = `conversion webhook for example.com/v1, Kind=Widget failed: Post "https://127.0.0.1:1": connection refused`
	dead := inventory.Definition{Kind: "Widget.example.com", Converts: true, Service: types.NamespacedName{Namespace: "ops", Name: "hook"}}
	with := func(d inventory.Definition, storage string, stored ...string) inventory.Definition {
		d.Storage, d.Stored = storage, stored
		return d
	}
	alive, byURL, none := dead, dead, dead
	alive.Endpoints, byURL.Service, none.Converts = 1, types.NamespacedName{}, false
	instance, all := requests("Background", "a"), []string{"a Kept refused to User"}
	crd := requests("Background", "widgets.example.com")
	for name, test := range map[string]struct {
		definition inventory.Definition
		requests   []preview.Request
		unread     []string // objects that the server cannot convert
		want       []string
	}{
		"all stored in another version":                   {with(dead, "v2", "v2"), instance, nil, all},
		"all stored in this version":                      {with(dead, "v1", "v1"), instance, nil, []string{"a Deleted", "b Deleted"}},
		"it may be stored in another version, and is":     {with(dead, "v1", "v1", "v2"), instance, []string{"a"}, all},
		"it may be stored in another version, and is not": {with(dead, "v1", "v1", "v2"), instance, []string{"c"}, []string{"a Deleted", "b Deleted"}},
		"it would be stored in another version":           {with(dead, "v2", "v1", "v2"), requests("Foreground", "a"), nil, all},
		"a dependent":                                     {with(dead, "v1", "v1", "v2"), instance, []string{"b"}, []string{"a Deleted", "b Kept refused to Collector"}},
		"a dependent to be orphaned": {
			with(dead, "v1", "v1", "v2"), requests("Orphan", "a"), []string{"b"}, []string{"a Waiting", "b Kept refused to Collector to change it"},
		},
		"without a webhook":                    {with(none, "v2", "v2"), instance, nil, []string{"a Deleted", "b Deleted"}},
		"the webhook answers":                  {with(alive, "v2", "v2"), instance, nil, []string{"a Deleted", "b Deleted"}},
		"the webhook has endpoints, and fails": {with(alive, "v2", "v2"), instance, []string{"a", "b", "c"}, all},
		"the webhook has a URL, and fails":     {with(byURL, "v2", "v2"), instance, []string{"a", "b", "c"}, all},
		"the namespace": {
			with(dead, "v2", "v2"), requests("Background", "shop"), nil,
			[]string{"a Kept refused to NamespaceController", "b Kept refused to NamespaceController", "c Kept refused to NamespaceController", "shop Waiting"},
		},
		"the definition, all stored alike":                  {with(dead, "v2", "v2"), crd, nil, []string{"a Deleted", "b Deleted", "c Deleted", "widgets.example.com Deleted"}},
		"the definition, one is stored in another version":  {with(dead, "v1", "v1", "v2"), crd, []string{"c"}, []string{"widgets.example.com Waiting refused to Server"}},
		"the definition, one is stored in the version read": {with(dead, "v2", "v1", "v2"), crd, []string{"b", "c"}, []string{"widgets.example.com Waiting refused to Server"}},
	} {
		t.Run(name, func(t *testing.T) {
			inv := cluster(t, "Namespace shop", "CustomResourceDefinition widgets.example.com", "Widget a", "Widget b < a", "Widget c")
			facts := judgedFacts(inv, nil)
			facts.Policies.Value = nil
			facts.Definitions["widgets.example.com"] = inventory.Fact[inventory.Definition]{Value: test.definition}
			for _, o := range test.unread {
				facts.Bodies[ownership.UID(o)] = inventory.Fact[*unstructured.Unstructured]{Unread: failed}
			}
			p := preview.NewPredictor(inv, facts, preview.Question{Requests: test.requests}).Predict()
			if diff := cmp.Diff(test.want, verdicts(p)); diff != "" {
				t.Error(diff)
			}
			isRefused := slices.ContainsFunc(p.Outcomes, func(o preview.Outcome) bool { return o.Refusal != nil })
			if r := p.Report(inv); (r.Refused > 0) != isRefused {
				t.Errorf("%d are refused", r.Refused)
			}
		})
	}
}

// Upstream's collector does not see that owners are gone which cannot be converted: their dependents stay.
func TestUpstreamDoesNotSeeThatUnconvertedOwnersAreGone(t *testing.T) {
	for name, test := range map[string]struct {
		order namespaces.Order
		want  string
	}{
		"upstream": {namespaces.UpstreamOrder(), "c Kept refused to Collector"},
		"ours":     {namespaces.Order{}, "c Deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			inv := cluster(t, "CustomResourceDefinition widgets.example.com", "Widget a", "ConfigMap c < a")
			facts := judgedFacts(inv, nil)
			facts.Policies.Value = nil
			facts.Definitions["widgets.example.com"] = inventory.Fact[inventory.Definition]{Value: inventory.Definition{
				Kind: "Widget.example.com", Converts: true, Service: types.NamespacedName{Namespace: "ops", Name: "hook"}, Storage: "v2", Stored: []string{"v2"},
			}}
			question := preview.Question{Requests: requests("Background", "widgets.example.com"), Order: test.order}
			p := preview.NewPredictor(inv, facts, question).Predict()
			if diff := cmp.Diff([]string{"a Deleted", test.want, "widgets.example.com Deleted"}, verdicts(p)); diff != "" {
				t.Error(diff)
			}
			if text := p.Report(inv).String(); strings.Contains(text, "stays, because the list of its owner's kind is refused to the garbage collector") != (name == "upstream") {
				t.Error(text)
			}
		})
	}
}

// A namespace stays whose contents cannot be listed because they cannot be converted, and so does the definition.
func TestContentsThatCannotBeListed(t *testing.T) {
	for target, want := range map[string]string{
		"shop":                "shop Waiting refused to NamespaceController",
		"widgets.example.com": "widgets.example.com Waiting refused to Server",
	} {
		inv := cluster(t, "Namespace shop", "CustomResourceDefinition widgets.example.com")
		inv.Unread = []inventory.Unread{{
			Resource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"},
			Why:      "conversion webhook for example.com/v1, Kind=Widget failed: no endpoints",
		}}
		facts := judgedFacts(inv, nil)
		facts.Policies.Value = nil
		p := preview.NewPredictor(inv, facts, preview.Question{Requests: requests("Background", target)}).Predict()
		if diff := cmp.Diff([]string{want}, verdicts(p)); diff != "" {
			t.Error(diff)
		}
	}
}
