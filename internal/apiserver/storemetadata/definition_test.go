package storemetadata

import (
	"bytes"
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apiserver"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

// storedDefinition has two served versions, one version that is not served, and a schema.
func storedDefinition(scope apiextensionsv1.ResourceScope, conditions ...apiextensionsv1.CustomResourceDefinitionCondition) *apiextensionsv1.CustomResourceDefinition {
	d := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com", Labels: map[string]string{"app": "x"}},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: scope,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"},
		},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{Conditions: conditions, StoredVersions: []string{"v1"}},
	}
	for _, version := range []string{"v1", "v1beta1", "v1alpha1"} {
		d.Spec.Versions = append(d.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
			Name: version, Served: version != "v1beta1", Storage: version == "v1",
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Type: "object", Description: `of a "type":"Established","status":"True"`,
			}},
		})
	}
	return d
}

func TestDefinitionOf(t *testing.T) {
	accepted := apiextensionsv1.CustomResourceDefinitionCondition{Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue}
	yes := apiextensionsv1.CustomResourceDefinitionCondition{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}
	no := apiextensionsv1.CustomResourceDefinitionCondition{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionFalse}
	served := []string{"v1", "v1alpha1"}
	for name, test := range map[string]struct {
		definition *apiextensionsv1.CustomResourceDefinition
		want       definition
		served     bool
	}{
		"namespaced":            {storedDefinition(apiextensionsv1.NamespaceScoped, accepted, yes), definition{true, served}, true},
		"in the cluster":        {storedDefinition(apiextensionsv1.ClusterScoped, yes), definition{false, served}, true},
		"not established":       {storedDefinition(apiextensionsv1.NamespaceScoped, accepted, no), definition{}, false},
		"new":                   {storedDefinition(apiextensionsv1.NamespaceScoped), definition{}, false},
		"only its names are in": {storedDefinition(apiextensionsv1.NamespaceScoped, accepted), definition{}, false},
	} {
		for format, value := range storedForms(t, test.definition) {
			got, ok := definitionOf(value)
			if ok != test.served || got.namespaced != test.want.namespaced || !slices.Equal(got.versions, test.want.versions) {
				t.Errorf("%s, %s: %+v, %t, want %+v, %t", name, format, got, ok, test.want, test.served)
			}
			for length := range len(value) {
				if _, ok := definitionOf(value[:length]); ok && length < len(value)/2 {
					t.Errorf("%s, %s: the first %d bytes are a definition", name, format, length)
					break
				}
			}
		}
	}
}

// storedForms returns a definition as each version of Coppice has stored it, in both versions of
// the API.
func storedForms(t *testing.T, d *apiextensionsv1.CustomResourceDefinition) map[string][]byte {
	t.Helper()
	forms := make(map[string][]byte)
	for format, serializer := range map[string]runtime.Encoder{
		"JSON":     json.NewSerializerWithOptions(json.DefaultMetaFactory, apiextensions.Scheme, apiextensions.Scheme, json.SerializerOptions{}),
		"protobuf": protobuf.NewSerializer(apiextensions.Scheme, apiextensions.Scheme),
	} {
		for _, version := range []schema.GroupVersion{apiextensionsv1.SchemeGroupVersion, v1beta1.SchemeGroupVersion} {
			internal, err := apiextensions.Scheme.ConvertToVersion(d, runtime.InternalGroupVersioner)
			if err != nil {
				t.Fatal(err)
			}
			var value bytes.Buffer
			if err := apiextensions.Codecs.EncoderForVersion(serializer, version).Encode(internal, &value); err != nil {
				t.Fatal(err)
			}
			forms[format+" of "+version.Version] = value.Bytes()
		}
	}
	return forms
}
