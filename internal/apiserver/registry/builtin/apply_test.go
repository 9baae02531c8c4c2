package builtin

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/util"

	"github.com/coppice-dev/coppice/internal/apiserver/openapi"
	"github.com/coppice-dev/coppice/internal/apiserver/registry"
)

// converter returns the converter that server-side apply uses, based on the OpenAPI definitions.
func converter(t *testing.T, s registry.Schemes) managedfields.TypeConverter {
	t.Helper()
	var names []string
	for _, resource := range Resources() {
		name := util.GetCanonicalTypeName(resource.New())
		if n, ok := resource.New().(util.OpenAPIModelNamer); ok {
			name = n.OpenAPIModelName()
		}
		names = append(names, name)
	}
	get := func(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
		return openapi.GetOpenAPIDefinitions(ref)
	}
	config := genericapiserver.DefaultOpenAPIV3Config(get, openapinamer.NewDefinitionNamer(s.External))
	definitions, err := builder3.BuildOpenAPIDefinitionsForResources(config, names...)
	if err != nil {
		t.Fatal(err)
	}
	c, err := managedfields.NewTypeConverter(definitions, false)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestApplyRoundTrip: server-side apply sees every field of an object, and applying an object to
// itself changes nothing.
func TestApplyRoundTrip(t *testing.T) {
	schemes := NewSchemes()
	c := converter(t, schemes)
	eachResource(t, func(t *testing.T, resource registry.Resource) {
		fill := newFuzzer(t, schemes)
		refused := 0
		for range fuzzRounds {
			obj := resource.New()
			fill.Fill(obj)
			obj.GetObjectKind().SetGroupVersionKind(resource.GVK())
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
			if err != nil {
				t.Fatal(err)
			}
			value, err := c.ObjectToTyped(&unstructured.Unstructured{Object: content})
			if err != nil {
				// Two elements of a list may have the same key by chance, or one may have none.
				if refused++; refused > fuzzRounds/2 {
					t.Fatalf("the last of %d: %v", refused, err)
				}
				continue
			}
			merged, err := value.Merge(value)
			if err != nil {
				t.Fatal(err)
			}
			got, err := c.TypedToObject(merged)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(content, got.(*unstructured.Unstructured).Object); diff != "" {
				t.Fatalf("(-applied +got):\n%s", diff)
			}
		}
	})
}
