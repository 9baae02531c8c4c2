package preview_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/rules/apiservice"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// Owners in foreground or orphan deletion wait for a group that does not answer, where Coppice's collector works and the
// group may have dependents of theirs (R15).
func TestR15_HeldOwnersArePredicted(t *testing.T) {
	const group = "metrics.example.com/v1"
	began := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	broke, neverUp := apiservice.Outage{Since: began, Why: "no endpoints"}, apiservice.Outage{Since: began, NeverUp: true}
	const held = "a Waiting by User for Barrier metrics.example.com/v1[]"
	for name, test := range map[string]struct {
		outage    apiservice.Outage
		created   time.Time // of the owner
		policy    string
		upstream  bool // a server with upstream's collector
		collected bool // a collector of Coppice answers
		known     bool // the collector knew the group before
		want      string
	}{
		"older":                            {broke, began.Add(-time.Hour), "Foreground", false, false, false, held},
		"older, orphan":                    {broke, began.Add(-time.Hour), "Orphan", false, false, false, held},
		"older, background":                {broke, began.Add(-time.Hour), "Background", false, false, false, "a Deleted by User"},
		"younger":                          {broke, began.Add(time.Hour), "Foreground", false, false, false, "a Deleted by User"},
		"younger, of a group that was up":  {broke, began.Add(time.Hour), "Foreground", false, false, true, held},
		"never up":                         {neverUp, began.Add(-time.Hour), "Foreground", false, false, false, "a Deleted by User"},
		"never up, orphan":                 {neverUp, began.Add(-time.Hour), "Orphan", false, false, false, held},
		"nothing is known":                 {apiservice.Outage{}, began, "Foreground", false, false, false, held},
		"upstream's collector":             {broke, began.Add(-time.Hour), "Foreground", true, false, false, "a Deleted by User"},
		"Coppice's, on upstream's server":  {broke, began.Add(-time.Hour), "Foreground", true, true, false, held},
		"younger, known by its whole text": {broke, time.Time{}, "Foreground", false, false, false, "a Deleted by User"},
	} {
		t.Run(name, func(t *testing.T) {
			inv := cluster(t, "ConfigMap a")
			inv.Object("a").Created = test.created
			inv.Unread = []inventory.Unread{{Resource: schema.GroupVersionResource{Group: "metrics.example.com", Version: "v1"}, Why: "no route to host"}}
			if test.known {
				inv.Resources = append(inv.Resources, &inventory.Resource{
					GroupVersionResource: schema.GroupVersionResource{Group: "metrics.example.com", Version: "v1", Resource: "readings"}, Kind: "Reading", Namespaced: true, Deletable: true,
				})
				inv.Index()
			}
			facts := judgedFacts(inv, nil)
			facts.Policies.Value = nil
			facts.Bodies["a"].Value.SetCreationTimestamp(metav1.NewTime(began.Add(time.Hour)))
			facts.RepeatedReplaces = &inventory.Fact[bool]{Value: test.upstream}
			facts.Outages[group] = inventory.Fact[apiservice.Outage]{Value: test.outage}
			p := preview.NewPredictor(inv, facts, preview.Question{Requests: requests(test.policy, "a"), Now: now(), Collected: test.collected}).Predict()
			if got := told(p); !slices.Equal(got, []string{test.want}) {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if finalizers := p.Outcomes[0].Finalizers; test.want == held && len(finalizers) != 1 {
				t.Errorf("it has the finalizers %q", finalizers)
			}
			if text := p.Report(inv).String(); name == "older" && !strings.Contains(text, "delete the APIService if nothing needs it") {
				t.Error(text)
			}
		})
	}
}
