package reader

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/inventory"
	"github.com/coppice-dev/coppice/internal/ownership"
)

// TestSelection: what the deletion of an object may reach are members; what they are judged by are asides.
func TestSelection(t *testing.T) {
	widget, definition := ownership.Kind{Group: "acme.io", Kind: "Widget"}, definitionKind()
	configMap, namespace := ownership.Kind{Kind: "ConfigMap"}, ownership.Kind{Kind: "Namespace"}
	claim, lease := ownership.Kind{Kind: "PersistentVolumeClaim"}, ownership.Kind{Group: "coordination.k8s.io", Kind: "Lease"}
	resources := []*inventory.Resource{
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
	observe(configMap, "other", "far", ownership.Active, "ConfigMap/a") // misplaced, and a claimant nevertheless
	observe(claim, "shop", "data", ownership.Active)
	observe(podKind(), "shop", "user", ownership.Active)
	observe(podKind(), "other", "stranger", ownership.Active)
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
		{"nothing", "gone", "", "operator"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSelection(resources, []ownership.UID{ownership.UID(test.of)})
			s.grow(g)
			if got := joined(s.members); got != test.members {
				t.Errorf("members %s, want %s", got, test.members)
			}
			if got := joined(s.asides); got != test.asides {
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
