package preview_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// A report names the unread resources of which the deletion may remove objects: dependents, and contents of a namespace.
// The deletion of the protected ConfigMap p is refused, and reaches nothing.
func TestUnseenResourcesAreThoseTheDeletionReaches(t *testing.T) {
	secrets, nodes := corev1.SchemeGroupVersion.WithResource("secrets"), corev1.SchemeGroupVersion.WithResource("nodes")
	down := func(group string) inventory.Unread {
		return inventory.Unread{Resource: schema.GroupVersionResource{Group: group, Version: "v1beta1"}}
	}
	for name, test := range map[string]struct {
		unread inventory.Unread
		of     string // the deleted objects, by name, that may reach its objects
	}{
		"namespaced":              {inventory.Unread{Resource: secrets}, "a shop v"},
		"in the namespace":        {inventory.Unread{Resource: secrets, Namespace: "shop"}, "a shop v"},
		"in another namespace":    {inventory.Unread{Resource: secrets, Namespace: "other"}, "v"},
		"outside of it":           {inventory.Unread{Resource: secrets, Except: []string{"shop"}}, "v"},
		"cluster-scoped":          {inventory.Unread{Resource: nodes}, "v"},
		"group":                   {down("acme.io"), "a shop v"},
		"metrics":                 {down("metrics.k8s.io"), ""},
		"custom metrics":          {down("custom.metrics.k8s.io"), ""},
		"external metrics":        {down("external.metrics.k8s.io"), ""},
		"that cannot be deleted":  {inventory.Unread{Resource: corev1.SchemeGroupVersion.WithResource("componentstatuses")}, ""},
		"group of other versions": {inventory.Unread{Resource: schema.GroupVersionResource{Group: "batch", Version: "v2"}}, "a shop v"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			for _, root := range []string{"a", "shop", "v", "p"} {
				inv := cluster(t, "ConfigMap a", "ConfigMap p always", "Namespace shop", "PersistentVolume v")
				inv.Namespaces["shop"] = &corev1.Namespace{}
				inv.Resources = append(inv.Resources, &inventory.Resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("componentstatuses"), Kind: "ComponentStatus"})
				test.unread.Why = "no right"
				inv.Unread = []inventory.Unread{test.unread}
				inv.Index()
				p := preview.New(inv).Predict(preview.RequestsOf([]ownership.UID{ownership.UID(root)}, metav1.DeletePropagationBackground), preview.Options{
					Protection: func(o *inventory.Object) inventory.Fact[inventory.Protection] {
						return inventory.Fact[inventory.Protection]{Value: inventory.Protection{Protection: protection.New(o.Labels.Get(protection.Label), ""), Enforced: true}}
					},
				})
				r := p.Report(inv)
				if len(r.Unseen) > 0 {
					got += " " + root
					name := test.unread.Resource.GroupResource().String()
					if test.unread.Resource.Resource == "" {
						name = test.unread.Resource.Group
					}
					if u := r.Unseen[0]; u.Resource != name || u.Says != test.unread.String() || (u.Kind == "Secret") != (test.unread.Resource == secrets) {
						t.Errorf("%+v", r.Unseen)
					}
				}
			}
			want := ""
			if test.of != "" {
				want = " " + test.of
			}
			if got != want {
				t.Errorf("reached from%s; want%s", got, want)
			}
		})
	}
}

// The list of unseen resources has a bound, like the other lists of a report, and counts the rest. A user who accepts all
// resources that are forbidden accepts the rest only if all of it is forbidden.
func TestUnseenResourcesAreBounded(t *testing.T) {
	for name, test := range map[string]struct {
		forbidden int // of 150
		first     bool
		rest      bool // is forbidden
	}{
		"outages": {0, false, false}, "mostly outages": {49, false, false}, "half of each": {75, false, true}, "an outage": {149, false, true}, "no right": {150, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			inv := cluster(t, "ConfigMap a")
			for n := range 150 {
				inv.Unread = append(inv.Unread, inventory.Unread{
					Resource: schema.GroupVersionResource{Group: fmt.Sprintf("g-%d", n), Version: "v1"}, Why: "no", Forbidden: n < test.forbidden,
				})
			}
			r := preview.New(inv).Predict(preview.RequestsOf([]ownership.UID{"a"}, metav1.DeletePropagationBackground), preview.Options{}).Report(inv)
			if len(r.Unseen) != 101 {
				t.Fatalf("%d", len(r.Unseen))
			}
			if want := (preview.UnseenReport{Says: "and 50 more", Forbidden: test.rest}); r.Unseen[100] != want || r.Unseen[0].Forbidden != test.first {
				t.Errorf("the first one is %+v, the last one %+v, want %+v", r.Unseen[0], r.Unseen[100], want)
			}
		})
	}
}
