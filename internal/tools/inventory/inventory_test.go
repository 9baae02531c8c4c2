package inventory_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

func resource(group, version, plural, kind string, namespaced bool, short ...string) *inventory.Resource {
	return &inventory.Resource{
		GroupVersionResource: schema.GroupVersionResource{Group: group, Version: version, Resource: plural},
		Kind:                 kind, Singular: strings.ToLower(kind), ShortNames: short, Namespaced: namespaced,
	}
}

// served are resources, some with the same names.
func served() []*inventory.Resource {
	return []*inventory.Resource{
		resource("", "v1", "pods", "Pod", true, "po"),
		resource("", "v1", "services", "Service", true, "svc"),
		resource("", "v1", "namespaces", "Namespace", false, "ns"),
		resource("apps", "v1", "deployments", "Deployment", true, "deploy"),
		resource("metrics.k8s.io", "v1beta1", "pods", "PodMetrics", true),
		resource("serving.knative.dev", "v1", "services", "Service", true, "ksvc"),
	}
}

// A resource is found by each of its names; if several resources share a name, by a fixed preference.
func TestResourceIsFoundByEachOfItsNames(t *testing.T) {
	inv := &inventory.Inventory{Resources: served()}
	inv.Index()
	for text, want := range map[string]string{
		"po": "pods", "Pod": "pods", "PODS": "pods", "pods.v1": "pods",
		"pods.metrics.k8s.io": "pods.metrics.k8s.io", "podmetrics": "pods.metrics.k8s.io",
		"svc": "services", "services": "services", "ksvc": "services.serving.knative.dev",
		"service.serving.knative.dev": "services.serving.knative.dev", "services.v1.serving.knative.dev": "services.serving.knative.dev",
		"deploy": "deployments.apps", "deployment.v1.apps": "deployments.apps",
		"deployment.extensions": "", "widgets": "", "": "",
	} {
		r, err := inv.Find(text)
		switch {
		case want == "" && err == nil:
			t.Errorf("%q is found: %v", text, r.GroupResource())
		case want != "" && err != nil:
			t.Errorf("%q: %v", text, err)
		case want != "" && r.GroupResource().String() != want:
			t.Errorf("%q is %v, want %s", text, r.GroupResource(), want)
		}
	}
	inv.Unread = []inventory.Unread{{Resource: schema.GroupVersionResource{Group: "down.example.com", Version: "v1"}, Why: "503"}}
	if _, err := inv.Find("widgets"); err == nil || !strings.Contains(err.Error(), "group down.example.com, which may have it, does not answer: 503") {
		t.Errorf("a resource that an unread group may have: %v", err)
	}
}

// The command line is parsed in the same way as by kubectl.
func TestSelectorsAreParsedAsByKubectl(t *testing.T) {
	inv := &inventory.Inventory{Resources: served()}
	inv.Index()
	for line, want := range map[string]string{
		"pod/a deploy/b": "pods shop [a]; deployments.apps shop [b]",
		"pods a b":       "pods shop [a b]",
		"pods,deploy":    "pods shop []; deployments.apps shop []",
		"ns/shop":        "namespaces  [shop]",
		"":               "",
		"pod/a b":        `error: "b" is not TYPE/NAME, as the first argument is`,
		"pod/":           `error: "pod/" is not TYPE/NAME, as the first argument is`,
		"pods ns/b":      `error: "ns/b" is TYPE/NAME, but the first argument is a type alone`,
		"widgets/a":      `error: the server does not serve "widgets"; kubectl api-resources lists its resources`,
	} {
		selectors, err := inv.ParseSelectors(strings.Fields(line), "shop")
		var got []string
		for _, s := range selectors {
			got = append(got, s.Resource.GroupResource().String()+" "+s.Namespace+" ["+strings.Join(s.Names, " ")+"]")
		}
		if err != nil {
			got = []string{"error: " + err.Error()}
		}
		if strings.Join(got, "; ") != want {
			t.Errorf("%q: %s, want %s", line, strings.Join(got, "; "), want)
		}
	}
}

// An owner that is missing in a complete list is absent, otherwise unknown.
func TestGraphOfWhatWasRead(t *testing.T) {
	pods := served()[0]
	deployments := served()[3]
	dependent := &inventory.Object{Resource: pods, Object: ownership.Object{
		UID: "p", Kind: pods.OwnerKind(), Namespace: "shop", Name: "p",
		Owners: []ownership.Reference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "d"}},
	}}
	for name, c := range map[string]struct {
		unread []inventory.Unread
		want   ownership.Presence
	}{
		"all":                    {nil, ownership.Absent},
		"not deployments":        {[]inventory.Unread{{Resource: deployments.GroupVersionResource}}, ownership.Unknown},
		"not those of shop":      {[]inventory.Unread{{Resource: deployments.GroupVersionResource, Namespace: "shop"}}, ownership.Unknown},
		"not those of another":   {[]inventory.Unread{{Resource: deployments.GroupVersionResource, Namespace: "other"}}, ownership.Absent},
		"only those of shop":     {[]inventory.Unread{{Resource: deployments.GroupVersionResource, Except: []string{"shop"}}}, ownership.Absent},
		"not the group of these": {[]inventory.Unread{{Resource: schema.GroupVersionResource{Group: "apps", Version: "v1"}}}, ownership.Unknown},
	} {
		inv := &inventory.Inventory{Resources: []*inventory.Resource{pods, deployments}, Objects: []*inventory.Object{dependent}, Unread: c.unread}
		inv.Index()
		if got := inv.Graph().Owners("p")[0].Presence; got != c.want {
			t.Errorf("read %s: the owner is %v, want %v", name, got, c.want)
		}
	}
}
