package apiserver

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/runtime"
)

// manyFields is a definition with values that encodings easily lose: defaults and enumerations of any type,
// numbers, false and empty values, int-or-string, schemas that differ between versions.
const manyFields = `{
	"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
	"metadata": {"name": "widgets.example.com", "uid": "u", "generation": 2, "creationTimestamp": "2026-01-02T03:04:05Z"},
	"spec": {
		"group": "example.com", "scope": "Cluster",
		"names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList", "shortNames": ["w"], "categories": ["all"]},
		"conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://localhost/", "caBundle": "YQ=="}}},
		"versions": [{
			"name": "v1", "served": true, "storage": true, "deprecated": true, "deprecationWarning": "old",
			"subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}},
			"selectableFields": [{"jsonPath": ".spec.a"}],
			"additionalPrinterColumns": [{"name": "N", "type": "integer", "jsonPath": ".spec.n", "priority": 1}],
			"schema": {"openAPIV3Schema": {"type": "object", "properties": {
				"n": {"type": "number", "minimum": -0.1, "maximum": 1e21, "exclusiveMaximum": true, "multipleOf": 0.1, "default": 1},
				"a": {"type": "string", "enum": ["", "<b>", null], "nullable": true, "maxLength": 0, "pattern": "^.*$", "default": ""},
				"o": {"type": "object", "additionalProperties": {"type": "array", "items": {"x-kubernetes-int-or-string": true}}, "default": {"x": [1, null, {"y": false}]}},
				"p": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "x-kubernetes-embedded-resource": true, "not": {"required": ["z"]}},
				"l": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "minItems": 0,
					"items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "integer", "format": "int64"}}},
					"x-kubernetes-validations": [{"rule": "true", "message": "m", "reason": "FieldValueInvalid", "fieldPath": ".a"}]}
			}, "additionalProperties": false, "anyOf": [{"required": ["a"]}, {}]}}
		}, {
			"name": "v2", "served": false, "storage": false, "schema": {"openAPIV3Schema": {"type": "object"}}
		}]
	},
	"status": {
		"acceptedNames": {"plural": "widgets", "kind": "Widget"}, "storedVersions": ["v1"], "observedGeneration": 2,
		"conditions": [{"type": "Established", "status": "True", "reason": "InitialNamesAccepted", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z", "observedGeneration": 1}]
	}
}`

// A stored definition is unchanged, and definitions that earlier versions have stored can be read.
func TestStoredDefinitions(t *testing.T) {
	codec := definitionCodec()
	original, err := runtime.Decode(apiextensions.Codecs.UniversalDecoder(), []byte(manyFields))
	if err != nil {
		t.Fatal(err)
	}
	earlier := apiextensions.Codecs.LegacyCodec(v1beta1.SchemeGroupVersion, apiextensionsv1.SchemeGroupVersion)
	want := asJSON(t, original)
	for name, encoder := range map[string]runtime.Encoder{"now": codec, "earlier": earlier} {
		stored, err := runtime.Encode(encoder, original)
		if err != nil {
			t.Fatal(err)
		}
		if binary := bytes.HasPrefix(stored, []byte("k8s\x00")); binary != (name == "now") {
			t.Errorf("stored %s: as protobuf: %t", name, binary)
		}
		read, err := runtime.Decode(codec, stored)
		if err != nil {
			t.Fatalf("stored %s: %v", name, err)
		}
		if diff := cmp.Diff(want, asJSON(t, read)); diff != "" {
			t.Errorf("stored %s: (-want +got)\n%s", name, diff)
		}
	}
}

// asJSON returns a definition in the form that clients receive.
func asJSON(t *testing.T, definition runtime.Object) (answer map[string]any) {
	t.Helper()
	text, err := runtime.Encode(apiextensions.Codecs.LegacyCodec(apiextensionsv1.SchemeGroupVersion), definition)
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	if err != nil {
		t.Fatal(err)
	}
	return answer
}
