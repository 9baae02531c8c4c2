package system

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/rules/protection"
)

func TestProtectDefaultsNamesResourcesAsUsersDo(t *testing.T) {
	got, err := ProtectDefaults([]string{"crds=unused", "namespace=unused", "secrets=cascading", "deploy=always", "ingresses.networking.k8s.io=unused", "widgets.acme.io=unused", "widgets.acme.io=unused"})
	if err != nil {
		t.Fatal(err)
	}
	want := protection.Defaults{
		{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}: protection.Unused,
		{Resource: "namespaces"}:                                    protection.Unused,
		{Resource: "secrets"}:                                       protection.Cascading,
		{Group: "apps", Resource: "deployments"}:                    protection.Always,
		{Group: "networking.k8s.io", Resource: "ingresses"}:         protection.Unused,
		schema.GroupResource{Group: "acme.io", Resource: "widgets"}: protection.Unused,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestProtectDefaultsRefusesWhatProtectsNothing(t *testing.T) {
	for value, want := range map[string]string{
		"crds":                   "is not RESOURCE=MODE",
		"=unused":                "a resource is missing",
		"crds=forever":           "choose one of always, cascading, unused",
		"pvc=outlives":           "each object lists what it outlives",
		"widgets=unused":         "its plural and its group",
		"deployment.app=unused":  "",
		"widgets.apps=unused":    `group apps has no resource "widgets"`,
		"crds=none":              "is unknown",
		"crds=unused,crd=always": "has two modes, unused and always",
	} {
		_, err := ProtectDefaults(strings.Split(value, ","))
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", value, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %s", value, err, want)
		}
	}
}
