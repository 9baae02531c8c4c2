package cli

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/insight"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// TestPreviewTree: requested objects are on top, contents of a namespace are below it, and an object with two
// owners is there once.
func TestPreviewTree(t *testing.T) {
	inv := pictureInventory()
	p := preview.New(inv).Predict([]preview.Request{{UID: "shop", Propagation: metav1.DeletePropagationBackground}}, preview.Options{Now: time.Unix(0, 0)})
	text, err := pictureOf(p.Report(inv)).Encode(insight.Tree)
	if err != nil {
		t.Fatal(err)
	}
	want := `Namespace shop: waiting; waits for contents: ConfigMap shop/b
├── ConfigMap shop/a: deleted in step 1, by the namespace controller
│   ├── ConfigMap shop/c: deleted in step 1, by the namespace controller
│   └── ConfigMap shop/b: waiting, by the namespace controller; waits for finalizer example.com/hold
└── ConfigMap shop/d: deleted in step 1, by the namespace controller
    └── ConfigMap shop/c (see above)
`
	if string(text) != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}

// pictureInventory has a namespace with a, which owns b and c, and d, which owns c as well.
func pictureInventory() *inventory.Inventory {
	spaces := &inventory.Resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("namespaces"), Kind: "Namespace", Deletable: true}
	maps := &inventory.Resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("configmaps"), Kind: "ConfigMap", Namespaced: true, Deletable: true}
	inv := &inventory.Inventory{Resources: []*inventory.Resource{spaces, maps}}
	add := func(r *inventory.Resource, namespace, name string, owners ...string) *inventory.Object {
		o := &inventory.Object{Resource: r}
		o.UID, o.Kind, o.Namespace, o.Name, o.ResourceVersion = ownership.UID(name), r.OwnerKind(), namespace, name, "1"
		for _, owner := range owners {
			o.Owners = append(o.Owners, ownership.Reference{APIVersion: "v1", Kind: "ConfigMap", Name: owner, UID: ownership.UID(owner)})
		}
		inv.Objects = append(inv.Objects, o)
		return o
	}
	add(spaces, "", "shop")
	add(maps, "shop", "a")
	add(maps, "shop", "b", "a").Finalizers = []string{"example.com/hold"}
	add(maps, "shop", "c", "a", "d")
	add(maps, "shop", "d")
	inv.Index()
	return inv
}
