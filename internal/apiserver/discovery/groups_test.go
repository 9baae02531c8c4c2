package discovery

import (
	"maps"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// listedGroups is a groupManager that records the groups.
type listedGroups map[string]metav1.APIGroup

func (l listedGroups) AddGroup(g metav1.APIGroup) { l[g.Name] = g }

func (l listedGroups) RemoveGroup(name string) { delete(l, name) }

func crd(name, group string, versions ...string) *apiextensionsv1.CustomResourceDefinition {
	d := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}
	d.Spec.Group = group
	for _, v := range versions {
		served := !strings.HasPrefix(v, "-")
		d.Spec.Versions = append(d.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{Name: strings.TrimPrefix(v, "-"), Served: served})
	}
	return d
}

func TestCustomGroups(t *testing.T) {
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	listed := listedGroups{"apps": apiGroup("apps", metav1.APIGroup{}, map[string]int32{"v1": 15})}
	var remotes []Remote
	groups := &Groups{
		definitions: store, remotes: func() []Remote { return remotes }, manager: listed, listed: map[string]metav1.APIGroup{},
		builtin: map[string]metav1.APIGroup{"apps": apiGroup("apps", metav1.APIGroup{}, map[string]int32{"v1": 15})},
	}
	check := func(step string, want map[string][]string) {
		t.Helper()
		groups.refresh()
		got := map[string][]string{}
		for name, g := range listed {
			if name == "apps" && len(g.Versions) == 1 {
				continue
			}
			for _, v := range g.Versions {
				got[name] = append(got[name], v.Version)
			}
			if g.PreferredVersion != g.Versions[0] {
				t.Errorf("%s: group %s prefers %s", step, name, g.PreferredVersion.Version)
			}
		}
		if !maps.EqualFunc(got, want, slices.Equal) {
			t.Errorf("%s: %v, want %v", step, got, want)
		}
		if len(listed["apps"].Name) == 0 {
			t.Fatalf("%s: a built-in group is gone", step)
		}
	}
	add := func(d *apiextensionsv1.CustomResourceDefinition) {
		t.Helper()
		if err := store.Update(d); err != nil {
			t.Fatal(err)
		}
	}
	check("nothing", map[string][]string{})
	add(crd("as", "a.com", "v1beta1", "v1", "-v2", "v1alpha1", "v10"))
	add(crd("bs", "a.com", "v3beta2", "v1"))
	add(crd("cs", "c.com", "-v1"))
	check("versions by maturity", map[string][]string{"a.com": {"v10", "v1", "v3beta2", "v1beta1", "v1alpha1"}})
	add(crd("cs", "c.com", "v1"))
	add(crd("as", "a.com", "-v1beta1"))
	check("changed", map[string][]string{"a.com": {"v1", "v3beta2"}, "c.com": {"v1"}})
	if err := store.Delete(crd("bs", "")); err != nil {
		t.Fatal(err)
	}
	check("gone", map[string][]string{"c.com": {"v1"}})
	remote := func(group, version string, priority int32) Remote {
		return Remote{schema.GroupVersion{Group: group, Version: version}, priority}
	}
	remotes = []Remote{remote("c.com", "v2", 200), remote("c.com", "v3", 10), remote("r.com", "v1", 1), remote("apps", "v9", 1000)}
	check("versions of other servers", map[string][]string{"apps": {"v1", "v9"}, "c.com": {"v2", "v1", "v3"}, "r.com": {"v1"}})
	for name, want := range map[string]bool{"apps": true, "c.com": true, "r.com": true, "a.com": false, "": false} {
		if group, ok := groups.Aggregated(name); ok != want || want && group.Name != name {
			t.Errorf("Aggregated(%q): %+v %t", name, group, ok)
		}
	}
	remotes = nil
	check("the other servers are gone", map[string][]string{"c.com": {"v1"}})
	if len(listed["apps"].Versions) != 1 {
		t.Errorf("apps is left with %v", listed["apps"].Versions)
	}
}
