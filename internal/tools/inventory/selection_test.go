package inventory

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// TestSelectionHasMembersAndAsides: objects that a deletion may reach are members; further objects that decide about
// them are asides.
func TestSelectionHasMembersAndAsides(t *testing.T) {
	widget, definition := ownership.Kind{Group: "acme.io", Kind: "Widget"}, definitionKind()
	configMap, namespace := ownership.Kind{Kind: "ConfigMap"}, ownership.Kind{Kind: "Namespace"}
	claim, lease := ownership.Kind{Kind: "PersistentVolumeClaim"}, ownership.Kind{Group: "coordination.k8s.io", Kind: "Lease"}
	resources := []*Resource{
		{Kind: "Widget", Namespaced: true, GroupVersionResource: schema.GroupVersionResource{Group: "acme.io", Version: "v1", Resource: "widgets"}},
		{Kind: "ConfigMap", Namespaced: true, GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}},
	}
	g := ownership.New()
	observe := func(kind ownership.Kind, namespace, name string, phase ownership.Phase, owners ...string) {
		o := ownership.Object{UID: ownership.UID(name), Kind: kind, Namespace: namespace, Name: name, Phase: phase}
		for _, owner := range owners {
			kind, named, _ := strings.Cut(owner, "/")
			version := "v1"
			if kind == "Widget" {
				version = "acme.io/v1"
			}
			o.Owners = append(o.Owners, ownership.Reference{APIVersion: version, Kind: kind, Name: named, UID: ownership.UID(named)})
		}
		g.Observe(o)
	}
	observe(namespace, "", "shop", ownership.Active)
	observe(namespace, "", "other", ownership.Active)
	observe(definition, "", "widgets.acme.io", ownership.Active)
	observe(widget, "shop", "root", ownership.Active)
	observe(widget, "shop", "owner", ownership.Active, "Widget/root")
	observe(configMap, "shop", "a", ownership.Active, "Widget/owner", "ConfigMap/nobody")
	observe(configMap, "shop", "b", ownership.Active, "ConfigMap/a", "Widget/leaving")
	observe(widget, "shop", "leaving", ownership.Foreground)
	observe(configMap, "shop", "c", ownership.Active, "Widget/leaving")
	observe(configMap, "other", "far", ownership.Active, "ConfigMap/a") // misplaced, but still a claimant
	observe(claim, "shop", "data", ownership.Active)
	observe(PodKind(), "shop", "user", ownership.Active)
	observe(PodKind(), "other", "stranger", ownership.Active)
	endpoints, secret := ownership.Kind{Kind: "Endpoints"}, ownership.Kind{Kind: "Secret"}
	g.Observe(ownership.Object{UID: "web", Kind: ownership.Kind{Kind: "Service"}, Namespace: "net", Name: "web"})
	g.Observe(ownership.Object{UID: "ep", Kind: endpoints, Namespace: "net", Name: "web"})
	observe(endpoints, "net", "others", ownership.Active)
	g.Observe(ownership.Object{UID: "far-ep", Kind: endpoints, Namespace: "far-net", Name: "web"})
	observe(configMap, "net", "slice", ownership.Active, "Endpoints/ep")
	observe(ownership.Kind{Kind: "ServiceAccount"}, "accounts", "robot", ownership.Active)
	observe(secret, "accounts", "token", ownership.Active)
	observe(secret, "net", "password", ownership.Active)
	observe(lease, "kube-system", "operator", ownership.Active)
	observe(lease, "kube-node-lease", "n1", ownership.Active)
	for _, test := range []struct {
		name, of        string
		members, asides string
	}{
		{"dependents, and what they hold", "a", "a b c far leaving", "operator other owner root shop widgets.acme.io"},
		{"a leaf", "user", "user", "operator shop"},
		{"a claim, and who uses it", "data", "data user", "operator shop"},
		{"a definition, and its instances", "widgets.acme.io", "a b c far leaving owner root widgets.acme.io", "operator other shop"},
		{"a namespace, and its contents", "shop", "a b c data far leaving owner root shop user", "operator other widgets.acme.io"},
		{"a Service, and its Endpoints", "web", "ep slice web", "operator"},
		{"a ServiceAccount, and what may be its tokens", "robot", "robot token", "operator"},
		{"nothing", "gone", "", "operator"},
	} {
		t.Run(test.name, func(t *testing.T) {
			view := func(read func(*ownership.Graph)) { read(g) }
			s := SelectConcerned(view, resources, []ownership.UID{ownership.UID(test.of)})
			if got := joined(s.Members); got != test.members {
				t.Errorf("members %s, want %s", got, test.members)
			}
			if got := joined(s.Asides); got != test.asides {
				t.Errorf("asides %s, want %s", got, test.asides)
			}
		})
	}
}

func joined(objects map[ownership.UID]ownership.Object) string {
	var names []string
	for uid := range objects {
		names = append(names, string(uid))
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// TestConfinedInventorySuffices: a confined inventory is enough for questions that do not lead to other namespaces.
// Some of the other questions lack only some kinds.
func TestConfinedInventorySuffices(t *testing.T) {
	resource := func(group, kind, plural string, namespaced bool) *Resource {
		return &Resource{Kind: kind, Namespaced: namespaced, GroupVersionResource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: plural}}
	}
	widgets, configMaps := resource("acme.io", "Widget", "widgets", true), resource("", "ConfigMap", "configmaps", true)
	parks, namespaces := resource("acme.io", "Park", "parks", false), resource("", "Namespace", "namespaces", false)
	definitions := resource("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions", false)
	deployments, pods := resource("apps", "Deployment", "deployments", true), resource("", "Pod", "pods", true)
	object := func(r *Resource, namespace, name string, change func(*ownership.Object)) *Object {
		o := ownership.Object{UID: ownership.UID(name), Kind: r.OwnerKind(), Namespace: namespace, Name: name}
		if change != nil {
			change(&o)
		}
		return &Object{Object: o, Resource: r}
	}
	ownedBy := func(r *Resource, name string) func(*ownership.Object) {
		return func(o *ownership.Object) {
			gv := schema.GroupVersion{Group: r.Group, Version: r.Version}
			o.Owners = append(o.Owners, ownership.Reference{APIVersion: gv.String(), Kind: r.Kind, Name: name, UID: ownership.UID(name)})
		}
	}
	held := func(o *ownership.Object) { o.Finalizers = []string{"acme.io/held"} }
	leaving := func(o *ownership.Object) { o.Phase = ownership.Foreground }
	shop, other := object(namespaces, "", "shop", nil), object(namespaces, "", "other", nil)
	root := object(configMaps, "shop", "root", nil)
	for name, test := range map[string]struct {
		beyond  bool
		of      string
		objects []*Object
		want    string
	}{
		"a leaf":                                 {false, "root", nil, ""},
		"a dependent":                            {false, "root", []*Object{object(configMaps, "shop", "a", ownedBy(configMaps, "root"))}, ""},
		"a dependent that a workload holds":      {false, "root", []*Object{object(configMaps, "shop", "a", func(o *ownership.Object) { ownedBy(configMaps, "root")(o); held(o) })}, "ConfigMap Deployment.apps Pod"},
		"somebody else is held":                  {false, "root", []*Object{object(configMaps, "shop", "a", held)}, ""},
		"a cluster-scoped owner":                 {false, "a", []*Object{object(parks, "", "park", nil), object(configMaps, "shop", "a", ownedBy(parks, "park"))}, ""},
		"a cluster-scoped owner waits":           {false, "a", []*Object{object(parks, "", "park", leaving), object(configMaps, "shop", "a", ownedBy(parks, "park"))}, "all"},
		"the definition goes":                    {false, "w", []*Object{object(definitions, "", "widgets.acme.io", leaving), object(widgets, "shop", "w", nil)}, "all"},
		"a namespace, and nothing beyond":        {false, "shop", nil, "all"},
		"a namespace":                            {true, "shop", nil, ""},
		"a namespace that owns a thing":          {true, "shop", []*Object{object(parks, "", "park", ownedBy(namespaces, "shop"))}, ""},
		"a namespace that owns one elsewhere":    {true, "shop", []*Object{object(configMaps, "other", "far", ownedBy(namespaces, "shop"))}, "all"},
		"a definition, and instances everywhere": {true, "widgets.acme.io", []*Object{object(definitions, "", "widgets.acme.io", nil)}, "all"},
	} {
		inv := &Inventory{
			Resources: []*Resource{widgets, configMaps, parks, namespaces, definitions, deployments, pods},
			Objects:   append([]*Object{shop, other, root}, test.objects...),
			Within:    []string{"shop"}, Beyond: test.beyond,
		}
		inv.Index()
		isBuiltIn := func(finalizer string) bool { return !strings.HasPrefix(finalizer, "acme.io/") }
		uids := []ownership.UID{ownership.UID(test.of)}
		missing := inv.Missing(uids, isBuiltIn)
		if got := inWords(missing); got != test.want {
			t.Errorf("%s: misses %q, want %q", name, got, test.want)
		}
		inv.Everywhere = missing.Everywhere
		if got := inWords(inv.Missing(uids, isBuiltIn)); !missing.All && got != "" {
			t.Errorf("%s: misses %s when that is read", name, got)
		}
		inv.Within = nil
		if got := inWords(inv.Missing(uids, isBuiltIn)); got != "" {
			t.Errorf("%s: the whole cluster misses %s", name, got)
		}
	}
}

// inWords describes what is missing.
func inWords(m Missing) string {
	if m.All {
		return "all"
	}
	words := make([]string, 0, len(m.Everywhere))
	for _, kind := range m.Everywhere {
		words = append(words, kind.String())
	}
	return strings.Join(words, " ")
}
