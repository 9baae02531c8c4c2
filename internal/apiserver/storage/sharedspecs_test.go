package storage

import (
	"runtime"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	apiextensionsserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
)

// definitionCodec is the codec of stored definitions.
func definitionCodec() apiruntime.Codec {
	codecs, versions := apiextensionsserver.Codecs, schema.GroupVersions{v1beta1.SchemeGroupVersion}
	binary := protobuf.NewSerializer(apiextensionsserver.Scheme, apiextensionsserver.Scheme)
	return codecs.CodecForVersions(binary, codecs.UniversalDeserializer(), versions, apiruntime.InternalGroupVersioner)
}

// newDefinition returns the definition that a client creates.
func newDefinition(t *testing.T, uid, description string) *apiextensions.CustomResourceDefinition {
	t.Helper()
	versioned := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com", UID: types.UID(uid)},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Description: description,
					Properties: map[string]apiextensionsv1.JSONSchemaProps{"n": {Type: "integer", Default: &apiextensionsv1.JSON{Raw: []byte("1")}}},
				}},
			}},
		},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{StoredVersions: []string{"v1"}},
	}
	apiextensionsserver.Scheme.Default(versioned)
	definition := &apiextensions.CustomResourceDefinition{}
	must(t, apiextensionsserver.Scheme.Convert(versioned, definition, nil))
	return definition
}

func encode(t *testing.T, codec apiruntime.Codec, definition *apiextensions.CustomResourceDefinition) []byte {
	t.Helper()
	data, err := apiruntime.Encode(codec, definition)
	must(t, err)
	return data
}

func decode(t *testing.T, codec apiruntime.Codec, data []byte) *apiextensions.CustomResourceDefinition {
	t.Helper()
	object, err := apiruntime.Decode(codec, data)
	must(t, err)
	return object.(*apiextensions.CustomResourceDefinition)
}

// A client that sends protobuf may leave out that additional properties are allowed where they have a schema. JSON, in
// which upstream stores definitions, cannot.
func TestAdditionalPropertiesWithSchemaAreAllowed(t *testing.T) {
	codec := withSharedSpecs(definitionCodec(), apiextensions.Resource("customresourcedefinitions"))
	for _, versions := range []int{1, 2} { // with two, each version has its schema
		written := newDefinition(t, "a", "first")
		values := apiextensions.JSONSchemaProps{Type: "object", AdditionalProperties: &apiextensions.JSONSchemaPropsOrBool{
			Schema: &apiextensions.JSONSchemaProps{Type: "string"},
		}}
		s := written.Spec.Validation
		s.OpenAPIV3Schema.Properties["m"] = values
		if versions == 2 {
			other := &apiextensions.CustomResourceValidation{OpenAPIV3Schema: &apiextensions.JSONSchemaProps{Type: "object"}}
			written.Spec.Validation = nil
			written.Spec.Versions = []apiextensions.CustomResourceDefinitionVersion{
				{Name: "v1", Served: true, Storage: true, Schema: s}, {Name: "v2", Schema: other},
			}
		}
		stored := encode(t, codec, written)
		if values.AdditionalProperties.Allows {
			t.Error("the object of the request is changed")
		}
		for name, decoder := range map[string]apiruntime.Codec{"shared": codec, "decoded": definitionCodec()} {
			read := decode(t, decoder, stored).Spec
			if read.Validation == nil {
				read.Validation = read.Versions[0].Schema
			}
			if got := read.Validation.OpenAPIV3Schema.Properties["m"].AdditionalProperties; !got.Allows || got.Schema == nil {
				t.Errorf("%d versions, %s: got %+v", versions, name, got)
			}
		}
	}
}

func TestSpecsAreShared(t *testing.T) {
	plain := definitionCodec()
	codec := withSharedSpecs(plain, apiextensions.Resource("customresourcedefinitions"))
	written := newDefinition(t, "a", "first")
	stored := encode(t, codec, written)
	changed := written.DeepCopy()
	changed.Generation = 2
	changed.Labels = map[string]string{"app": "x"}
	changed.Status.Conditions = []apiextensions.CustomResourceDefinitionCondition{{Type: apiextensions.Established, Status: apiextensions.ConditionTrue}}
	foreign := encode(t, plain, changed) // by another server
	emptied := written.DeepCopy()
	emptied.Status.StoredVersions = nil
	for name, test := range map[string]struct {
		data []byte
		with *apiextensions.CustomResourceDefinition
		want bool
	}{
		"the event of the write":           {stored, written, true},
		"the event of the next write":      {foreign, written, true},
		"another schema, one generation":   {encode(t, plain, newDefinition(t, "a", "second")), written, false},
		"what follows from the schema":     {encode(t, plain, emptied), written, false},
		"stored as JSON, before":           {encode(t, apiextensionsserver.Codecs.LegacyCodec(v1beta1.SchemeGroupVersion), written), written, false},
		"one that nobody here has written": {encode(t, plain, newDefinition(t, "b", "third")), written, false},
	} {
		encode(t, codec, written)
		got := decode(t, codec, test.data)
		if shared := got.Spec.Validation == test.with.Spec.Validation; shared != test.want {
			t.Errorf("%s: shared is %t, want %t", name, shared, test.want)
		}
		if diff := cmp.Diff(decode(t, plain, test.data), got); diff != "" {
			t.Errorf("%s: (-decoded whole +decoded)\n%s", name, diff)
		}
		if again := decode(t, codec, test.data); again == got {
			t.Errorf("%s: two events have the same object", name)
		}
	}
	runtime.KeepAlive(written)
	if same := withSharedSpecs(plain, schema.GroupResource{Resource: "configmaps"}); same != plain {
		t.Errorf("the codec of another resource is %T", same)
	}
}

// Truncated data are not a definition.
func TestTruncatedDefinitionsAreRefused(t *testing.T) {
	codec := withSharedSpecs(definitionCodec(), apiextensions.Resource("customresourcedefinitions"))
	written := newDefinition(t, "a", "first")
	stored := encode(t, codec, written)
	for length := range len(stored) {
		_, fails := apiruntime.Decode(definitionCodec(), stored[:length])
		if _, err := apiruntime.Decode(codec, stored[:length]); (err == nil) != (fails == nil) {
			t.Fatalf("the first %d bytes of %d: %v, want %v", length, len(stored), err, fails)
		}
	}
	runtime.KeepAlive(written)
}

// Unused definitions are not remembered.
func TestSharedSpecsAreForgotten(t *testing.T) {
	codec := withSharedSpecs(definitionCodec(), apiextensions.Resource("customresourcedefinitions")).(*sharedSpecs)
	for i := range 20 * minSweep {
		encode(t, codec, newDefinition(t, "a", strconv.Itoa(i)))
		if i%minSweep == 0 {
			runtime.GC()
		}
	}
	if n := len(codec.known); n > 4*minSweep {
		t.Errorf("%d definitions are remembered", n)
	}
}
