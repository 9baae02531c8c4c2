package api

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/collector/report"
)

// The errors of the API server in a status name objects. Callers who may not list all of a kind do not read them.
func TestStatusWithholdsErrors(t *testing.T) {
	const secret = `corrupt object, Key: "/registry/secrets/vault/password"`
	whole := report.Status{
		Resources: []report.ResourceStatus{{Kind: "Secret", State: "failing", Error: secret}, {Kind: "Pod", State: "failing", Error: "no answer"}, {Kind: "Node", State: "synced"}},
		Refused:   []report.RefusedObject{{Kind: "Pod", Namespace: "shop", Refuser: "keep", Message: "visible"}, {Kind: "Pod", Namespace: "other", Refuser: "keep", Message: secret}, {Kind: "Node", Message: secret}},
		Barrier:   []report.BarrierWait{{Owner: "Pod shop/web", Holds: []report.Hold{{What: "Secret", Why: secret}}}}, ProbeError: secret,
	}
	seen := SeenStatus{Status: whole}
	if err := seen.withholdErrors(func(kind, namespace string) (bool, error) {
		return kind == "Pod" || kind == "Event" && namespace == "shop", nil
	}); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(seen)
	if err != nil || strings.Contains(string(text), "vault") || seen.Resources[0].Error == "" || seen.Resources[1].Error != "no answer" || seen.Resources[2].Error != "" {
		t.Errorf("%s %v", text, err)
	}
	for n, want := range []string{"visible", withheldWords, withheldWords} {
		if got := seen.Refused[n].Message; got != want {
			t.Errorf("the words of a refusal are %q, want %q", got, want)
		}
	}
	if whole.Refused[1].Message != secret || whole.Resources[0].Error != secret || whole.Barrier[0].Holds[0].Why != secret {
		t.Errorf("the status of the collector has changed: %+v", whole)
	}
}
