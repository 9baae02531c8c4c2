package apiserver_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// TestErrorsOfCustomResourcesAreBounded checks that the server names the first mistakes of a custom resource only, in every
// kind of write. A megabyte of mistakes would take apiextensions-apiserver minutes, and gigabytes.
func TestErrorsOfCustomResourcesAreBounded(t *testing.T) {
	s := sharedServer(t)
	group := unique("g") + ".coppice.dev"
	d := definition(group, "trees", "Tree")
	integers := map[string]any{"type": "object", "properties": map[string]any{
		"list":  map[string]any{"type": "array", "items": map[string]any{"type": "integer"}},
		"items": map[string]any{"type": "array", "items": map[string]any{"type": "object", "required": []any{"a", "b", "c"}, "x-kubernetes-preserve-unknown-fields": true}},
	}}
	d["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)["schema"] = map[string]any{"openAPIV3Schema": map[string]any{
		"type": "object", "properties": map[string]any{"spec": integers, "status": integers},
	}}
	s.define(t, d)
	trees := s.collection(t, gvk(group, "v1", "Tree"), "trees", s.namespace(t), nil)
	stored := trees.create("stored")
	const many = 2000
	wrong, labels := map[string]any{"list": slices.Repeat([]any{"x"}, many)}, map[string]any{}
	for i := range many {
		labels[fmt.Sprintf("a %05d", i)] = ""
	}
	with := func(o *object, field string, value any) *object {
		changed := o.DeepCopy()
		changed.Object[field] = value
		return changed
	}
	labelled := func(name string) map[string]any {
		return map[string]any{
			"apiVersion": group + "/v1", "kind": "Tree", "metadata": map[string]any{"name": name, "labels": labels},
		}
	}
	for name, write := range map[string]func() (*object, error){
		"create":           func() (*object, error) { return trees.tryPost(with(trees.named("new"), "spec", wrong)) },
		"create, labels":   func() (*object, error) { return trees.tryPost(&object{Object: labelled("new")}) },
		"update":           func() (*object, error) { return trees.put(with(stored, "spec", wrong)) },
		"update of status": func() (*object, error) { return trees.put(with(stored, "status", wrong), "status") },
		"patch": func() (*object, error) {
			return trees.patch("stored", types.MergePatchType, map[string]any{"spec": wrong})
		},
		"patch of status": func() (*object, error) {
			return trees.patch("stored", types.MergePatchType, map[string]any{"status": wrong}, "status")
		},
		"apply": func() (*object, error) {
			return trees.send(http.MethodPatch, trees.at("stored")+"?fieldManager=test", string(types.ApplyPatchType), labelled("stored"))
		},
		"apply a new object": func() (*object, error) {
			return trees.send(http.MethodPatch, trees.at("new")+"?fieldManager=test", string(types.ApplyPatchType), labelled("new"))
		},
	} {
		_, err := write()
		status, ok := errors.AsType[*apierrors.StatusError](err)
		if !ok || !apierrors.IsInvalid(err) {
			t.Errorf("%s: %.300v, want an error about an invalid object", name, err)
			continue
		}
		causes := status.Status().Details.Causes
		if last := causes[len(causes)-1].Message; len(causes) != 201 || !strings.Contains(last, "more errors, which the server does not list") {
			t.Errorf("%s: %d causes, the last one is %.300s", name, len(causes), last)
		}
	}
	few := with(trees.named("few"), "spec", map[string]any{"items": slices.Repeat([]any{map[string]any{}}, 70)})
	if _, err := trees.tryPost(few); causesOf(err) != 201 {
		t.Errorf("a small object with 210 mistakes: %d causes, %.300v", causesOf(err), err)
	}
	large := with(trees.named("valid"), "spec", map[string]any{"list": slices.Repeat([]any{1}, many)})
	if _, err := trees.tryPost(large); err != nil {
		t.Errorf("a large object: %v", err)
	}
}

// causesOf returns the number of causes in the answer of a server.
func causesOf(err error) int {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || status.ErrStatus.Details == nil {
		return 0
	}
	return len(status.ErrStatus.Details.Causes)
}

// TestMistakesThatAreIgnoredAreBounded checks that the server refuses a custom resource with thousands of mistakes that
// apiextensions-apiserver would compare, every two of them, and then ignore. The metadata of a stored one can be changed:
// its finalizers must stay removable.
func TestMistakesThatAreIgnoredAreBounded(t *testing.T) {
	s := sharedServer(t)
	group := unique("g") + ".coppice.dev"
	d := definition(group, "trees", "Tree")
	schema := func(names map[string]any) map[string]any {
		return map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{
			"spec": map[string]any{"type": "object", "properties": map[string]any{
				"names": map[string]any{"type": "array", "items": names},
				"size":  map[string]any{"type": "integer"},
				"choice": map[string]any{"type": "array", "items": map[string]any{"type": "integer"}, "anyOf": []any{
					map[string]any{"items": map[string]any{"minimum": 10}}, map[string]any{"items": map[string]any{"maximum": 9}},
				}},
			}},
		}}}
	}
	spec := d["spec"].(map[string]any)
	strict := spec["versions"].([]any)[0].(map[string]any)
	strict["schema"] = schema(map[string]any{"type": "string", "maxLength": 1})
	spec["versions"] = []any{strict, map[string]any{
		"name": "v1alpha1", "served": true, "storage": false, "schema": schema(map[string]any{"type": "string"}),
	}}
	s.define(t, d)
	namespace := s.namespace(t)
	lax := s.collection(t, gvk(group, "v1alpha1", "Tree"), "trees", namespace, nil)
	trees := s.collection(t, gvk(group, "v1", "Tree"), "trees", namespace, nil)
	const many = 2500
	refused := func(what string, err error) {
		t.Helper()
		if !apierrors.IsInvalid(err) || causesOf(err) != 1 || !strings.Contains(err.Error(), "the server compares about 2000 of them") {
			t.Errorf("%s: %.300v", what, err)
		}
	}
	chosen := trees.named("chosen")
	chosen.Object["spec"] = map[string]any{"choice": slices.Repeat([]any{1}, 2*many)}
	_, err := trees.tryPost(chosen)
	refused("a list that is valid by the second alternative", err)

	stored := lax.named("stored")
	stored.Object["spec"] = map[string]any{"names": slices.Repeat([]any{"xx"}, many)}
	stored.SetFinalizers([]string{"coppice.dev/test"})
	if _, err := lax.tryPost(stored); err != nil {
		t.Fatal(err)
	}
	patch := func(change map[string]any) error {
		_, err := trees.patch("stored", types.MergePatchType, change)
		return err
	}
	refused("a change of the specification", patch(map[string]any{"spec": map[string]any{"size": 1}}))
	if err := patch(map[string]any{"metadata": map[string]any{"finalizers": nil}}); err != nil {
		t.Errorf("remove a finalizer: %.300v", err)
	}
	if err := patch(map[string]any{"spec": map[string]any{"size": 1, "names": []any{"x"}}}); err != nil {
		t.Errorf("correct the names: %.300v", err)
	}
}
