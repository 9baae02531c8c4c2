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
		"list": map[string]any{"type": "array", "items": map[string]any{"type": "integer"}},
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
	large := with(trees.named("valid"), "spec", map[string]any{"list": slices.Repeat([]any{1}, many)})
	if _, err := trees.tryPost(large); err != nil {
		t.Errorf("a large object: %v", err)
	}
}
