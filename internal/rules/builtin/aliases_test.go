package builtin

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestObjectsOfAnAliasAreReadThroughTheOtherResource(t *testing.T) {
	for alias, want := range map[string]string{
		"deployments.extensions":     "deployments.apps",
		"daemonsets.extensions":      "daemonsets.apps",
		"replicasets.extensions":     "replicasets.apps",
		"ingresses.extensions":       "ingresses.networking.k8s.io",
		"networkpolicies.extensions": "networkpolicies.networking.k8s.io",
		"events.events.k8s.io":       "events",
		"events":                     "",
		"others.extensions":          "",
		"deployments.apps":           "",
		"deployments.example.com":    "",
	} {
		got, ok := CanonicalOf(schema.ParseGroupResource(alias))
		if ok != (want != "") || ok && got.String() != want {
			t.Errorf("CanonicalOf(%s) = %s, %t, want %q", alias, got, ok, want)
		}
	}
}
