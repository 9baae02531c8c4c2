package apiserver_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestStrictErrorsAreBounded checks that the answer to a write with thousands of unknown fields names the first of them, and
// quotes no more than a part of the object, in every kind of write.
func TestStrictErrorsAreBounded(t *testing.T) {
	s := sharedServer(t)
	group := unique("g") + ".coppice.dev"
	d := definition(group, "trees", "Tree")
	d["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)["schema"] = map[string]any{"openAPIV3Schema": map[string]any{
		"type": "object", "properties": map[string]any{"spec": map[string]any{
			"type": "object", "properties": map[string]any{"a": map[string]any{"type": "string"}},
		}},
	}}
	s.define(t, d)
	namespace := s.namespace(t)
	unknown := map[string]any{}
	for i := range 5000 {
		unknown[fmt.Sprintf("unknown%d", i)] = "x"
	}
	const strictly, whole, apply = "?fieldManager=test&fieldValidation=Strict", "application/json", "application/apply-patch+yaml"
	for kind, c := range map[string]collection{
		"custom": s.collection(t, gvk(group, "v1", "Tree"), "trees", namespace, nil), "built in": s.configMaps(t, namespace),
	} {
		stored := c.create("stored")
		with := func(o *object) *object {
			changed := o.DeepCopy()
			changed.Object["spec"] = unknown
			if kind == "built in" {
				for name := range unknown {
					changed.Object[name] = "x"
				}
			}
			return changed
		}
		for how, write := range map[string]func() (*object, error){
			"create": func() (*object, error) { return c.send(http.MethodPost, c.path+strictly, whole, with(c.named("new"))) },
			"update": func() (*object, error) {
				return c.send(http.MethodPut, c.at("stored")+strictly, whole, with(stored))
			},
			"merge patch": func() (*object, error) {
				return c.send(http.MethodPatch, c.at("stored")+strictly, "application/merge-patch+json", with(&object{Object: map[string]any{}}))
			},
			"JSON patch": func() (*object, error) {
				add := []any{map[string]any{"op": "add", "path": "/spec", "value": unknown}}
				return c.send(http.MethodPatch, c.at("stored")+strictly, "application/json-patch+json", add)
			},
			"apply": func() (*object, error) {
				return c.send(http.MethodPatch, c.at("new")+strictly, apply, with(c.named("new")))
			},
		} {
			_, err := write()
			refused, ok := errors.AsType[*apierrors.StatusError](err)
			if !ok {
				t.Errorf("%s, %s: %.300v", kind, how, err)
				continue
			}
			text, _ := json.Marshal(refused.Status())
			if named := strings.Count(refused.ErrStatus.Message, "unknown field"); len(text) > 100_000 || named > 200 || refused.ErrStatus.Code == 0 {
				t.Errorf("%s, %s: %d bytes name %d fields: %.300s", kind, how, len(text), named, text)
			}
		}
	}
}
