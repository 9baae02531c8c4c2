package probe

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// CustomResourceDefinitions is the resource of CustomResourceDefinitions.
var CustomResourceDefinitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// Definition describes a CustomResourceDefinition.
type Definition struct {
	Cluster  bool
	Versions []any // the first is the version of the defined Kind
}

// Version returns one version of a custom resource.
func Version(name string, served, stored bool) any {
	return map[string]any{"name": name, "served": served, "storage": stored, "schema": map[string]any{
		"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
	}}
}

// Versions is a custom resource with a preferred version, another served version, and an
// unserved one.
func Versions() Definition {
	return Definition{Versions: []any{Version("v1", true, true), Version("v1beta1", true, false), Version("v1alpha1", false, false)}}
}

// Define defines a kind in a group of its own, with one version, and waits until it is served.
func (w *Space) Define(plural string) Kind {
	w.T.Helper()
	return w.DefineAs(plural, Definition{Versions: []any{Version("v1", true, true)}})
}

// DefineAs is Define with other versions, or another scope.
func (w *Space) DefineAs(plural string, d Definition) Kind {
	w.T.Helper()
	group := w.Name + ".example.com"
	name := strings.TrimSuffix(plural, "s")
	version, _, _ := unstructured.NestedString(d.Versions[0].(map[string]any), "name")
	k := Kind{
		GroupVersionResource: schema.GroupVersionResource{Group: group, Version: version, Resource: plural},
		Name:                 strings.ToUpper(name[:1]) + name[1:], Cluster: d.Cluster,
	}
	scope := "Namespaced"
	if d.Cluster {
		scope = "Cluster"
	}
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": CustomResourceDefinitions.GroupVersion().String(), "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": k.Definition()},
		"spec": map[string]any{
			"group": group, "scope": scope, "versions": d.Versions,
			"names": map[string]any{"plural": plural, "singular": name, "kind": k.Name, "listKind": k.Name + "List"},
		},
	}}
	if _, err := w.Server.Dynamic.Resource(CustomResourceDefinitions).Create(w.T.Context(), crd, metav1.CreateOptions{}); err != nil {
		w.T.Fatalf("define %s: %v", plural, err)
	}
	w.T.Cleanup(func() {
		ctx, cancel := w.cleaning()
		defer cancel()
		_ = w.Server.Dynamic.Resource(CustomResourceDefinitions).Delete(ctx, crd.GetName(), metav1.DeleteOptions{})
	})
	w.Serves(k.GroupVersionResource)
	return k
}

// Definition returns the name of the kind's CustomResourceDefinition.
func (k Kind) Definition() string { return k.Resource + "." + k.Group }

// Undefine deletes a definition, and waits until it and its instances are gone.
func (w *Space) Undefine(k Kind) {
	w.T.Helper()
	crds := w.Server.Dynamic.Resource(CustomResourceDefinitions)
	if err := crds.Delete(w.T.Context(), k.Definition(), metav1.DeleteOptions{}); err != nil {
		w.T.Fatal(err)
	}
	w.Until(fmt.Sprintf("the definition %s to go", k.Definition()), func() string {
		now, err := crds.Get(w.T.Context(), k.Definition(), metav1.GetOptions{})
		if !IsGone(err) {
			if err != nil {
				return err.Error()
			}
			conditions, _, _ := unstructured.NestedSlice(now.Object, "status", "conditions")
			if strings.Contains(fmt.Sprint(conditions), "InstanceDeletionFailed") {
				w.nudge(now)
			}
			return fmt.Sprintf("it is still there: %v", conditions)
		}
		if _, err := w.Server.Dynamic.Resource(k.GroupVersionResource).List(w.T.Context(), listOne()); !IsGone(err) {
			return fmt.Sprintf("%s are still served: %v", k.Definition(), err)
		}
		return ""
	})
}

// nudge changes a definition whose instances could not be deleted. Upstream's finalizing controller
// retries after 5 ms. If its cache does not have its own last write by then, it waits for the next
// change of the definition, or 5 minutes.
func (w *Space) nudge(crd *unstructured.Unstructured) {
	change := fmt.Sprintf(`{"metadata":{"annotations":{"conformance.example.com/seen":%q}}}`, crd.GetResourceVersion())
	_, _ = w.Server.Dynamic.Resource(CustomResourceDefinitions).Patch(w.T.Context(), crd.GetName(), types.MergePatchType, []byte(change), metav1.PatchOptions{}) // the definition may be gone now
}

// Redefine changes a definition by a JSON merge patch.
func (w *Space) Redefine(k Kind, patch string) {
	w.T.Helper()
	_, err := w.Server.Dynamic.Resource(CustomResourceDefinitions).Patch(w.T.Context(), k.Definition(), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		w.T.Fatalf("redefine %s: %v", k.Definition(), err)
	}
}

const (
	twoVersions = `{"spec":{"versions":[` + oneVersion + `,` + oneVersion + `]}}`
	oneVersion  = `{"name":%q,"served":true,"storage":%t,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}`
	byNobody    = `{"spec":{"conversion":{"strategy":"Webhook","webhook":{"clientConfig":{"url":"https://127.0.0.1:1/convert"},"conversionReviewVersions":["v1"]}}}}`
	byName      = `{"spec":{"conversion":{"strategy":"None","webhook":null}}}`
)

// BreakReading makes a kind unreadable in every served version: objects are stored in each
// version, and the conversion webhook does not answer. It returns one object for each version,
// and a function that repairs the kind.
func (w *Space) BreakReading(k Kind, options ...Option) (stored []Object, repair func()) {
	w.T.Helper()
	stored = append(stored, w.Create(k.At("v1"), "stored-as-v1", options...))
	w.Redefine(k, fmt.Sprintf(twoVersions, "v1", false, "v2", true))
	// A server that serves the new version stores objects in it.
	w.Serves(k.At("v2").GroupVersionResource)
	stored = append(stored, w.Create(k.At("v2"), "stored-as-v2", options...))
	w.T.Cleanup(func() {
		ctx, cancel := w.cleaning()
		defer cancel()
		_, _ = w.Server.Dynamic.Resource(CustomResourceDefinitions).Patch(ctx, k.Definition(), types.MergePatchType, []byte(byName), metav1.PatchOptions{})
	})
	w.Redefine(k, byNobody)
	w.Until(fmt.Sprintf("that %s cannot be listed", k.Definition()), func() string {
		for _, v := range []string{"v1", "v2"} {
			// Without retries: the client would obey the server's Retry-After for a long time.
			path := "/apis/" + k.Group + "/" + v + "/" + k.Resource
			if err := w.Server.Kube.CoreV1().RESTClient().Get().AbsPath(path).MaxRetries(0).Do(w.T.Context()).Error(); err == nil {
				return path + " can still be listed"
			}
		}
		return ""
	})
	repair = func() {
		w.Redefine(k, byName)
		w.Serves(k.GroupVersionResource)
	}
	return stored, repair
}

// HasDefinitions reports whether the server has CustomResourceDefinitions.
func (w *Space) HasDefinitions() bool {
	w.T.Helper()
	_, err := w.Server.Dynamic.Resource(CustomResourceDefinitions).List(w.T.Context(), listOne())
	if err != nil && !IsGone(err) {
		w.T.Fatalf("list CustomResourceDefinitions: %v", err)
	}
	return err == nil
}
