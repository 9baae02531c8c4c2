package namespaces

import (
	"strings"
	"testing"
)

func TestR22_ParseOrder(t *testing.T) {
	o, err := ParseOrder("pods, jobs.batch ; * ; secrets")
	if err != nil {
		t.Fatal(err)
	}
	for r, want := range map[Resource]Wave{
		pods: 0, resource("batch", "v1", "jobs"): 0, resource("", "v1", "jobs"): 1, configMaps: 1, roles: 1,
		resource("", "v1", "secrets"): 2,
	} {
		if got := o.WaveOf(r.GroupResource()); got != want {
			t.Errorf("%s is in wave %d, want %d", r.GroupResource(), got, want)
		}
	}
	for wave, want := range []string{"pods,jobs.batch", "*", "secrets", "over"} {
		if got := o.Name(Wave(wave)); got != want {
			t.Errorf("wave %d is named %q, want %q", wave, got, want)
		}
	}
	if o, err := ParseOrder(" "); err != nil || o.waves != nil || o.Name(o.end()-1) != "roles.rbac.authorization.k8s.io,rolebindings.rbac.authorization.k8s.io,networkpolicies.networking.k8s.io" {
		t.Errorf("the default order is %v (%v)", o, err)
	}
	for text, want := range map[string]string{
		"pods":          "would never go",
		"pods;*;*":      "two waves are *",
		"pods;*;pods":   "pods is in two waves",
		"pods;;*":       "names no resource",
		"pods,*;*":      "names no resource",
		"pods;*;roles;": "names no resource",
	} {
		if _, err := ParseOrder(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error with %q", text, err, want)
		}
	}
}
