package inuse

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/coppice-dev/coppice/internal/apiserver/openapi"
)

// TestTypesHaveTheFieldsOfOpenAPI compares the types of all kinds, with which TestReferencesAreInTheTable compares the table,
// with the definitions of the OpenAPI document: they have the same fields with text.
func TestTypesHaveTheFieldsOfOpenAPI(t *testing.T) {
	ref := func(path string) spec.Ref { return spec.MustCreateRef(path) }
	all := openapiDocument(openapi.GetOpenAPIDefinitions(ref))
	maps.Copy(all, apiextensionsopenapi.GetOpenAPIDefinitions(ref))
	compared := map[schema.GroupKind]int{}
	for kind, typ := range kindsOfAPI() {
		model, isModel := reflect.TypeAssert[interface{ OpenAPIModelName() string }](reflect.Zero(typ))
		if !isModel {
			t.Errorf("%s has no name in OpenAPI", kind)
			continue
		}
		if _, isServed := all[model.OpenAPIModelName()]; !isServed {
			continue // as a Binding, which is only sent
		}
		var fields, documented []string
		walk(typ, nil, nil, func(path []string, _ reflect.Type) { fields = append(fields, strings.Join(path, ".")) })
		all.walk(model.OpenAPIModelName(), nil, nil, func(path string) { documented = append(documented, path) })
		slices.Sort(fields)
		slices.Sort(documented)
		if diff := cmp.Diff(slices.Compact(documented), slices.Compact(fields)); diff != "" {
			t.Errorf("%s (-OpenAPI +type):\n%s", kind, diff)
		}
		compared[kind.GroupKind()] += len(documented)
	}
	for kind := range ReadFields().kinds {
		if compared[kind] == 0 {
			t.Errorf("no field of %s is compared", kind)
		}
	}
}

// openapiDocument are the definitions of a document, by name.
type openapiDocument map[string]common.OpenAPIDefinition

// walk calls found for each field with text below a definition, as walk does for a type.
func (d openapiDocument) walk(name string, path, within []string, found func(path string)) {
	if name == (metav1.ObjectMeta{}).OpenAPIModelName() || slices.Contains(within, name) {
		return
	}
	within = append(slices.Clone(within), name)
	for field, property := range d[name].Schema.Properties {
		below := append(slices.Clone(path), field)
		value, isMap := property, false
		for value.Ref.String() == "" && (value.Items != nil || value.AdditionalProperties != nil && value.AdditionalProperties.Schema != nil) {
			if value.Items != nil {
				value = *value.Items.Schema
			} else {
				value, isMap = *value.AdditionalProperties.Schema, true
			}
		}
		if value.Ref.String() != "" {
			d.walk(value.Ref.String(), below, within, found)
		} else if value.Type.Contains("string") && value.Format != "byte" && !isMap {
			found(strings.Join(below, "."))
		}
	}
}
