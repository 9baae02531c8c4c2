package conformance

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// definition describes a CustomResourceDefinition.
type definition struct {
	cluster  bool
	versions []any
}

// version returns one version of a custom resource.
func version(name string, served, stored bool) any {
	return map[string]any{"name": name, "served": served, "storage": stored, "schema": map[string]any{
		"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
	}}
}

// define defines a kind in a group of its own, with one version, and waits until it is served.
func (w *cluster) define(plural string) kind {
	w.t.Helper()
	return w.defineAs(plural, definition{versions: []any{version("v1", true, true)}})
}

func (w *cluster) defineAs(plural string, d definition) kind {
	w.t.Helper()
	group := w.space + ".example.com"
	name := strings.TrimSuffix(plural, "s")
	k := kind{
		GroupVersionResource: schema.GroupVersionResource{Group: group, Version: d.versions[0].(map[string]any)["name"].(string), Resource: plural},
		name:                 strings.ToUpper(name[:1]) + name[1:], cluster: d.cluster,
	}
	scope := "Namespaced"
	if d.cluster {
		scope = "Cluster"
	}
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": definitions.GroupVersion().String(), "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": plural + "." + group},
		"spec": map[string]any{
			"group": group, "scope": scope, "versions": d.versions,
			"names": map[string]any{"plural": plural, "singular": name, "kind": k.name, "listKind": k.name + "List"},
		},
	}}
	if _, err := w.server.dynamic.Resource(definitions).Create(w.t.Context(), crd, metav1.CreateOptions{}); err != nil {
		w.t.Fatalf("define %s: %v", plural, err)
	}
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = w.server.dynamic.Resource(definitions).Delete(ctx, crd.GetName(), metav1.DeleteOptions{})
	})
	w.server.serves(w.t, k.GroupVersionResource)
	return k
}

// at returns the same kind in another version.
func (k kind) at(version string) kind {
	k.Version = version
	return k
}

func (k kind) definition() string { return k.Resource + "." + k.Group }

// undefine deletes a definition, and waits until it and its instances are gone.
func (w *cluster) undefine(k kind) {
	w.t.Helper()
	crds := w.server.dynamic.Resource(definitions)
	if err := crds.Delete(w.t.Context(), k.definition(), metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
	eventually.Agrees(w.t, func() string {
		if now, err := crds.Get(w.t.Context(), k.definition(), metav1.GetOptions{}); !isGone(err) {
			conditions, _, _ := unstructured.NestedSlice(now.Object, "status", "conditions")
			if !w.server.ours() && strings.Contains(fmt.Sprint(conditions), "InstanceDeletionFailed") {
				// Upstream's finalizer of definitions tries again after 5 ms, and when its
				// cache has not seen its own last write by then it gives up until the next
				// change, or for 5 minutes.
				change := fmt.Sprintf(`{"metadata":{"annotations":{"conformance.example.com/seen":%q}}}`, now.GetResourceVersion())
				_, _ = crds.Patch(w.t.Context(), k.definition(), types.MergePatchType, []byte(change), metav1.PatchOptions{}) // it may be gone now
			}
			return fmt.Sprintf("the definition %s is still there: %v %v", k.definition(), err, conditions)
		}
		if _, err := w.server.dynamic.Resource(k.GroupVersionResource).List(w.t.Context(), listOne); !isGone(err) {
			return fmt.Sprintf("%s are still served: %v", k.definition(), err)
		}
		return ""
	})
}

// redefine changes the spec of a definition by a JSON merge patch.
func (w *cluster) redefine(k kind, patch string) {
	w.t.Helper()
	_, err := w.server.dynamic.Resource(definitions).Patch(w.t.Context(), k.definition(), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		w.t.Fatalf("redefine %s: %v", k.definition(), err)
	}
}

// breakReading makes a kind unreadable in every version that is served: objects are stored in
// each version, and the webhook that converts them does not answer. It returns one object for
// each version, and a function that repairs the kind.
func (w *cluster) breakReading(k kind, options ...option) (stored []object, repair func()) {
	w.t.Helper()
	stored = append(stored, w.create(k.at("v1"), "stored-as-v1", options...))
	const versions = `{"name":%q,"served":true,"storage":%t,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}`
	const nowhere = `{"strategy":"Webhook","webhook":{"clientConfig":{"url":"https://127.0.0.1:1/convert"},"conversionReviewVersions":["v1"]}}`
	w.redefine(k, fmt.Sprintf(`{"spec":{"versions":[`+versions+`,`+versions+`]}}`, "v1", false, "v2", true))
	// What serves the new version stores in it.
	w.server.serves(w.t, k.at("v2").GroupVersionResource)
	stored = append(stored, w.create(k.at("v2"), "stored-as-v2", options...))
	w.redefine(k, `{"spec":{"conversion":`+nowhere+`}}`)
	eventually.Agrees(w.t, func() string {
		for _, v := range []string{"v1", "v2"} {
			// At once: a client that is told to try again later does so for a long time.
			path := "/apis/" + k.Group + "/" + v + "/" + k.Resource
			if err := w.server.kube.CoreV1().RESTClient().Get().AbsPath(path).MaxRetries(0).Do(w.t.Context()).Error(); err == nil {
				return path + " can still be listed"
			}
		}
		return ""
	})
	repair = func() {
		w.redefine(k, `{"spec":{"conversion":{"strategy":"None","webhook":null}}}`)
		w.server.serves(w.t, k.GroupVersionResource)
	}
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_, _ = w.server.dynamic.Resource(definitions).Patch(ctx, k.definition(), types.MergePatchType, []byte(`{"spec":{"conversion":{"strategy":"None","webhook":null}}}`), metav1.PatchOptions{})
	})
	return stored, repair
}

func TestCustomResources(t *testing.T) {
	t.Parallel()
	t.Run("MX-01 custom owns core and core owns custom", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		gizmos := w.define("gizmos")
		for _, kinds := range [][2]kind{{gizmos, configMaps}, {configMaps, gizmos}} {
			owner := w.create(kinds[0], "owner-of-"+kinds[1].Resource)
			dependent := w.create(kinds[1], "dependent-of-"+kinds[0].Resource, ownedBy(blocking(owner)))
			w.settle(gizmos, configMaps)
			order := w.watch(gizmos, configMaps)
			w.remove(owner, foreground)
			w.eventuallyGone(owner)
			order.goneBefore(owner, dependent)
		}
	})
	t.Run("CR-01 foreground among objects of a kind that is new", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		gizmos := w.define("gizmos")
		owner := w.create(gizmos, "owner")
		dependents := w.createMany(3, gizmos, "dependent", ownedBy(blocking(owner)))
		order := w.watch(gizmos)
		w.remove(owner, foreground)
		w.eventuallyGone(owner)
		order.goneBefore(owner, dependents...)
	})
	t.Run("CR-02 background among objects in no namespace, of a kind that is new", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		gizmos := w.defineAs("gizmos", definition{cluster: true, versions: []any{version("v1", true, true)}})
		owner, other := w.create(gizmos, "owner"), w.create(gizmos, "other")
		dependents := w.createMany(3, gizmos, "dependent", ownedBy(ref(owner)))
		core := w.create(configMaps, "dependent", ownedBy(ref(owner)))
		w.remove(owner, background)
		w.eventuallyGone(owner, core)
		w.eventuallyGone(dependents...)
		w.areKept(other)
	})
	t.Run("CR-03 a definition goes with its instances and what they own, and comes again", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		for i := range 2 {
			gizmos := w.define("gizmos")
			// A definition that is created again under its old name may be served only a moment
			// after it is established.
			var owner object
			eventually.Agrees(t, func() string {
				var err error
				if owner, err = w.tryCreate(gizmos, "owner"); err != nil {
					return err.Error()
				}
				return ""
			})
			dependent := w.create(configMaps, fmt.Sprint("dependent-", i), ownedBy(ref(owner)))
			w.settle(gizmos)
			w.areKept(dependent)
			w.undefine(gizmos)
			w.eventuallyGone(dependent)
		}
	})
}

// A kind that cannot be read in any version.
func TestUnreadableKind(t *testing.T) {
	t.Run("CR-04 DR-04 DR-08 one kind that cannot be read holds up no other, and recovers", func(t *testing.T) {
		w := quiet(t)
		gizmos := w.define("gizmos").at("v2")
		stored, repair := w.breakReading(gizmos.at("v1"), ownedBy(nobody(configMaps)))
		w.collect(nil)
		owner := w.create(configMaps, "owner")
		dependent := w.create(secrets, "dependent", ownedBy(ref(owner)))
		w.settle(configMaps, secrets)
		w.remove(owner, background)
		w.eventuallyGone(owner, dependent)
		repair()
		w.eventuallyGone(stored...)
	})
}
