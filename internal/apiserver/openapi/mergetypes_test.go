package openapi_test

import (
	"log/slog"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/internal/apiserver/openapi"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/builtin"
)

func newTypes() (*openapi.MergeTypes, cache.Store) {
	external := builtin.NewSchemes().External
	definitions := cache.NewStore(cache.MetaNamespaceKeyFunc)
	return openapi.NewMergeTypes(openapi.V3Config(external), external, func() cache.Store { return definitions }, slog.New(slog.DiscardHandler)), definitions
}

// Every built-in kind has a type, which is built once; a kind that is not served has none.
func TestBuiltinTypes(t *testing.T) {
	kinds, _ := newTypes()
	for _, kind := range []schema.GroupVersionKind{
		{Version: "v1", Kind: "Pod"},
		{Group: "apps", Version: "v1", Kind: "Deployment"},
		{Group: "autoscaling", Version: "v1", Kind: "Scale"},
		{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
	} {
		found := kinds.GetTypeConverter(kind)
		if found == nil {
			t.Errorf("%s has no type", kind)
			continue
		}
		if kinds.GetTypeConverter(kind) != found {
			t.Errorf("the type of %s is built again", kind)
		}
		empty := &unstructured.Unstructured{}
		empty.SetGroupVersionKind(kind)
		if _, err := found.ObjectToTyped(empty); err != nil {
			t.Errorf("the type of %s does not know it: %v", kind, err)
		}
	}
	if found := kinds.GetTypeConverter(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Widget"}); found != nil {
		t.Errorf("a kind that is not served has the type %v", found)
	}
}

// widgets defines a custom resource with a field size of the given type.
func widgets(uid types.UID, generation int64, size string) *apiextensionsv1.CustomResourceDefinition {
	names := apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList"}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com", UID: uid, Generation: generation},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Names: names, Scope: apiextensionsv1.NamespaceScoped,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"size": {Type: size}},
				}},
			}},
		},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{
			AcceptedNames: names,
			Conditions:    []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}},
		},
	}
}

// The type of a custom resource follows its current definition.
func TestCustomTypes(t *testing.T) {
	kinds, definitions := newTypes()
	kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	fits := func(size any) bool {
		converter := kinds.GetTypeConverter(kind)
		if converter == nil {
			t.Fatal("no type")
		}
		_, err := converter.ObjectToTyped(&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "w"}, "size": size,
		}})
		return err == nil
	}
	if found := kinds.GetTypeConverter(kind); found != nil {
		t.Errorf("before the definition there is %v", found)
	}
	for _, step := range []struct {
		definition    *apiextensionsv1.CustomResourceDefinition
		number, words bool
	}{
		{widgets("u1", 1, "integer"), true, false},
		{widgets("u1", 2, "string"), false, true},
		{widgets("u2", 2, "integer"), true, false}, // deleted and created again
	} {
		if err := definitions.Update(step.definition); err != nil {
			t.Fatal(err)
		}
		if number, words := fits(int64(1)), fits("big"); number != step.number || words != step.words {
			t.Errorf("%s, generation %d: a number fits: %t, words fit: %t", step.definition.UID, step.definition.Generation, number, words)
		}
	}
	if err := definitions.Delete(widgets("u2", 2, "integer")); err != nil {
		t.Fatal(err)
	}
	if found := kinds.GetTypeConverter(kind); found != nil {
		t.Errorf("after the definition there is %v", found)
	}
}
