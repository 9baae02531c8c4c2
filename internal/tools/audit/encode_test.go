package audit_test

import (
	"encoding/json"
	"encoding/xml"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/coppice-dev/coppice/internal/tools/audit"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// faulty returns the report of a cluster with an error, a warning and a note.
func faulty(t *testing.T) audit.Report {
	t.Helper()
	inv := cluster(t, append(healthy(), "a pods default/a owner=apps/v1:ReplicaSet:old:gone", "b pods default/b label=pod-template-hash:1",
		"c pods default/c owner=example.org/v1:Gadget:g:gone")...)
	inv.Unread = []inventory.Unread{{Why: "it is down"}}
	inv.Unread[0].Resource.Group, inv.Unread[0].Resource.Version = "example.org", "v1"
	return audit.Check(inv, audit.Options{})
}

func encode(t *testing.T, r audit.Report, format string) string {
	t.Helper()
	text, err := r.Encode(format)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTableListsFindings(t *testing.T) {
	t.Parallel()
	want := `SEVERITY   CODE             NAMESPACE   OBJECT   FINDING
error      owner-absent     default     pods/a   The owner ReplicaSet.apps old (gone) does not exist.
warning    looks-owned      default     pods/b   It has the label pod-template-hash=1 of a controller, and no owner.
note       owner-not-seen   default     pods/c   The owner Gadget.example.org g is of a group that does not answer.
`
	got := encode(t, faulty(t), "table")
	if !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "\n1 error, 1 warning, 1 note in 14 objects; 1 resource could not be read\n") {
		t.Errorf("got\n%swant\n%s…", got, want)
	}
	if got := encode(t, audit.Check(cluster(t), audit.Options{}), "table"); got != "0 errors, 0 warnings in 2 objects\n" {
		t.Errorf("nothing found: %q", got)
	}
	if _, err := faulty(t).Encode("xml"); err == nil || !strings.Contains(err.Error(), "sarif") {
		t.Errorf("unknown format: %v", err)
	}
}

// TestJSONAndYAMLContainTheWholeReport: JSON and YAML contain the whole report, and are equal.
func TestJSONAndYAMLContainTheWholeReport(t *testing.T) {
	t.Parallel()
	report := faulty(t)
	var fromJSON, fromYAML audit.Report
	if err := json.Unmarshal([]byte(encode(t, report, "json")), &fromJSON); err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict([]byte(encode(t, report, "yaml")), &fromYAML); err != nil {
		t.Fatal(err)
	}
	for _, got := range []audit.Report{fromJSON, fromYAML} {
		if diff := cmp.Diff(report, got); diff != "" {
			t.Errorf("read back (-want +got):\n%s", diff)
		}
	}
	if got := encode(t, audit.Report{}, "json"); !strings.Contains(got, `"findings": []`) {
		t.Errorf("no findings are no list: %s", got)
	}
}

func TestSARIF(t *testing.T) {
	t.Parallel()
	var log struct {
		Version string
		Runs    []struct {
			Tool struct {
				Driver struct{ Rules []struct{ ID string } }
			}
			Results []struct {
				RuleID              string
				RuleIndex           int
				Level               string
				PartialFingerprints map[string]string
				Locations           []struct {
					LogicalLocations []struct{ FullyQualifiedName string }
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(encode(t, faulty(t), "sarif")), &log); err != nil {
		t.Fatal(err)
	}
	run := log.Runs[0]
	if log.Version != "2.1.0" || len(run.Results) != 3 {
		t.Fatalf("got %+v", log)
	}
	prints := make(map[string]bool)
	for _, result := range run.Results {
		if run.Tool.Driver.Rules[result.RuleIndex].ID != result.RuleID {
			t.Errorf("%s has the index of another rule", result.RuleID)
		}
		prints[result.PartialFingerprints["coppice/v1"]] = true
	}
	first := run.Results[0]
	if first.Level != "error" || first.Locations[0].LogicalLocations[0].FullyQualifiedName != "default/pods/a" || len(prints) != 3 {
		t.Errorf("first result: %+v; fingerprints: %v", first, prints)
	}
}

func TestJUnitHasACasePerFinding(t *testing.T) {
	t.Parallel()
	var got struct {
		Suite struct {
			Tests    int `xml:"tests,attr"`
			Failures int `xml:"failures,attr"`
			Cases    []struct {
				Name    string  `xml:"name,attr"`
				Failure *string `xml:"failure"`
				Out     string  `xml:"system-out"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal([]byte(encode(t, faulty(t), "junit")), &got); err != nil {
		t.Fatal(err)
	}
	if got.Suite.Tests != len(audit.Rules()) || got.Suite.Failures != 2 {
		t.Errorf("%d tests, %d failures", got.Suite.Tests, got.Suite.Failures)
	}
	for _, c := range got.Suite.Cases {
		fails := c.Name == string(audit.OwnerAbsent) || c.Name == string(audit.LooksOwned)
		if fails != (c.Failure != nil) || fails && !strings.Contains(*c.Failure, "in namespace default: ") {
			t.Errorf("test case %+v", c)
		}
		if c.Name == string(audit.OwnerUnread) && !strings.Contains(c.Out, "pods/c") {
			t.Errorf("the note is lost: %+v", c)
		}
	}
}

// An accepted finding about a finalizer hides none about another finalizer of the object, unless the baseline is of an
// older version, which names no finalizers.
func TestKnownFindingsNameTheirFinalizers(t *testing.T) {
	t.Parallel()
	finding := func(finalizer string) audit.Finding {
		return audit.Finding{Code: audit.Unserved, Severity: audit.Warning, Object: audit.Object{Resource: "configmaps", Namespace: "shop", Name: "a"}, Finalizer: finalizer}
	}
	report := audit.Report{Findings: []audit.Finding{finding("a.io/x"), finding("b.io/y")}}
	first := audit.Report{Findings: report.Findings[:1]}
	if left := report.Without(first.Baseline()); len(left.Findings) != 1 || left.Findings[0].Finalizer != "b.io/y" || left.Known != 1 {
		t.Errorf("findings: %+v, %d known", left.Findings, left.Known)
	}
	old, err := audit.ParseBaseline([]byte("findings: [{code: finalizer-not-served, object: configmaps/a, namespace: shop}]"))
	if err != nil {
		t.Fatal(err)
	}
	if left := report.Without(old); len(left.Findings) != 0 || left.Known != 2 {
		t.Errorf("with a baseline of an older version: %+v, %d known", left.Findings, left.Known)
	}
	var log struct {
		Runs []struct {
			Results []struct{ PartialFingerprints map[string]string }
		}
	}
	if err := json.Unmarshal([]byte(encode(t, report, "sarif")), &log); err != nil {
		t.Fatal(err)
	}
	if results := log.Runs[0].Results; results[0].PartialFingerprints["coppice/v1"] == results[1].PartialFingerprints["coppice/v1"] {
		t.Error("findings about two finalizers have the same fingerprint")
	}
}

// A baseline keeps the accepted findings that a confined or incomplete check cannot find.
func TestBaselineKeepsWhatIsNotChecked(t *testing.T) {
	t.Parallel()
	accepted, err := audit.ParseBaseline([]byte(`findings:
- {code: owner-absent, object: configmaps/fixed, namespace: shop}
- {code: owner-absent, object: configmaps/other, namespace: other}
- {code: owner-absent, object: deployments.apps/unread, namespace: shop}
- {code: owner-absent, object: widgets.example.com/no-group, namespace: shop}
- {code: owner-absent, object: secrets/listed, namespace: shop}
- {code: owner-absent, object: secrets/unlisted, namespace: other}
- {code: owner-absent, object: nodes/n}
`))
	if err != nil {
		t.Fatal(err)
	}
	inv := &inventory.Inventory{Unread: []inventory.Unread{
		{Resource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, Namespace: "shop"},
		{Resource: schema.GroupVersionResource{Group: "example.com", Version: "v1"}},
		{Resource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, Except: []string{"shop"}},
	}}
	for namespace, want := range map[string][]string{
		"":     {"deployments.apps/unread", "widgets.example.com/no-group", "secrets/unlisted"},
		"shop": {"configmaps/other", "deployments.apps/unread", "widgets.example.com/no-group", "secrets/unlisted", "nodes/n"},
	} {
		kept := accepted.Unchecked(inv, audit.Options{Namespace: namespace})
		var objects []string
		for _, k := range kept.With(kept).Findings {
			objects = append(objects, k.Object)
		}
		if !slices.Equal(objects, want) {
			t.Errorf("in namespace %q: %q, want %q", namespace, objects, want)
		}
	}
}

// TestKnownFindingsAreLeftOut: the findings of a baseline are not reported again, even if the object was recreated.
func TestKnownFindingsAreLeftOut(t *testing.T) {
	t.Parallel()
	text, err := faulty(t).Baseline().Encode()
	if err != nil {
		t.Fatal(err)
	}
	baseline, err := audit.ParseBaseline(text)
	if err != nil {
		t.Fatal(err)
	}
	inv := cluster(t, append(healthy(), "a2 pods default/a owner=apps/v1:ReplicaSet:old:gone2", "n pods default/n owner=apps/v1:ReplicaSet:old:gone")...)
	report := audit.Check(inv, audit.Options{}).Without(baseline)
	if len(report.Findings) != 1 || report.Findings[0].Object.Name != "n" || report.Known != 1 {
		t.Errorf("findings: %q, %d known", brief(report), report.Known)
	}
	if known := faulty(t).Without(baseline); known.Found() || known.Known != 2 {
		t.Errorf("findings: %q, %d known", brief(known), known.Known)
	}
	if _, err := audit.ParseBaseline([]byte("finding: []")); err == nil {
		t.Error("a file that is no baseline was accepted")
	}
}
