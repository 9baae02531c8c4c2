package namespaces

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// parseOrder parses an order.
func parseOrder(text string) (Order, error) { return NewOrder(ParseStages(text)) }

func TestR22_OrderOfStagesIsParsed(t *testing.T) {
	o, err := parseOrder("pods, jobs.batch ; * ; secrets")
	if err != nil {
		t.Fatal(err)
	}
	for r, want := range map[Resource]Stage{
		pods: 0, resource("batch", "v1", "jobs"): 0, resource("", "v1", "jobs"): 1, configMaps: 1, roles: 1,
		resource("", "v1", "secrets"): 2,
	} {
		if got := o.StageOf(r.GroupResource()); got != want {
			t.Errorf("%s is in stage %d, want %d", r.GroupResource(), got, want)
		}
	}
	for stage, want := range []string{"pods,jobs.batch", "*", "secrets", "end"} {
		if got := o.Name(Stage(stage)); got != want {
			t.Errorf("stage %d is named %q, want %q", stage, got, want)
		}
	}
	if o, err := parseOrder(" "); err != nil || o.stages != nil || o.Name(o.end()-1) != "roles.rbac.authorization.k8s.io,rolebindings.rbac.authorization.k8s.io,networkpolicies.networking.k8s.io" {
		t.Errorf("the default order is %v (%v)", o, err)
	}
	for text, want := range map[string]string{
		"pods":          "would never be deleted",
		"pods;*;*":      "two stages are *",
		"pods;*;pods":   "pods is in two stages",
		"pods;;*":       "names no resource",
		"pods,*;*":      "names no resource",
		"pods;*;roles;": "names no resource",
	} {
		if _, err := parseOrder(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error with %q", text, err, want)
		}
	}
	if _, err := NewOrder([][]schema.GroupResource{{{Resource: EverythingElse}}, {}}); err == nil {
		t.Error("a stage without resources is accepted")
	}
}

// The default order can also be given explicitly.
func TestR22_DefaultOrderCanBeGiven(t *testing.T) {
	given, err := NewOrder(DefaultStages())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []Resource{pods, configMaps, deployments, roles, bindings, policies} {
		if got, want := given.StageOf(r.GroupResource()), (Order{}).StageOf(r.GroupResource()); got != want {
			t.Errorf("%s is in stage %d, want %d", r.GroupResource(), got, want)
		}
	}
}
