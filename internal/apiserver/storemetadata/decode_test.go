package storemetadata

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

// object has all metadata except managed fields, and another field with the name metadata.
func object() *corev1.ConfigMap {
	deleted := metav1.NewTime(time.Unix(1_700_000_000, 0).UTC())
	return &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "a", GenerateName: "a-", Namespace: "team", UID: "uid", Generation: 3,
			CreationTimestamp: metav1.NewTime(time.Unix(1_600_000_000, 0).UTC()), DeletionTimestamp: &deleted, DeletionGracePeriodSeconds: new(int64(30)),
			Labels: map[string]string{"app": "x"}, Annotations: map[string]string{"note": "metadata"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "owner-uid", Controller: new(true)}},
			Finalizers:      []string{"example.com/hold"},
			ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "test", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:metadata":{}}`)}}},
		},
		Data: map[string]string{"metadata": "x"},
	}
}

func encoded(t *testing.T, encoder runtime.Encoder) []byte {
	t.Helper()
	var value bytes.Buffer
	if err := encoder.Encode(object(), &value); err != nil {
		t.Fatal(err)
	}
	return value.Bytes()
}

func TestMetadataIsDecodedFromProtobufAndJSON(t *testing.T) {
	want := &metav1.PartialObjectMetadata{TypeMeta: typeOfMetadata(), ObjectMeta: object().ObjectMeta}
	want.ManagedFields, want.ResourceVersion = nil, "42"
	binary := encoded(t, protobuf.NewSerializer(scheme.Scheme, scheme.Scheme))
	text := encoded(t, json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, json.SerializerOptions{}))
	for name, value := range map[string][]byte{"protobuf": binary, "JSON": text} {
		got, err := decode(value, 42)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got.CreationTimestamp.Time, got.DeletionTimestamp.Time = got.CreationTimestamp.UTC(), got.DeletionTimestamp.UTC()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
		for length := range value[:len(value)/2] {
			if name == "JSON" && length > strings.Index(string(text), `"creationTimestamp"`) {
				break // the fields after the metadata are not read
			}
			if _, err := decode(value[:length], 42); err == nil {
				t.Errorf("%s: the first %d bytes are an object", name, length)
				break
			}
		}
	}
}

// What a client decodes itself is the same metadata, whatever the object is stored in.
func TestMetadataIsEncodedFromProtobufAndJSON(t *testing.T) {
	binary := encoded(t, protobuf.NewSerializer(scheme.Scheme, scheme.Scheme))
	text := encoded(t, json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, json.SerializerOptions{}))
	for name, value := range map[string][]byte{"protobuf": binary, "JSON": text} {
		metadata, err := encode(value)
		var got metav1.ObjectMeta
		if err := errors.Join(err, got.Unmarshal(metadata)); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := object().ObjectMeta
		want.ManagedFields, got.ManagedFields = nil, nil // which the client skips
		got.CreationTimestamp.Time, got.DeletionTimestamp.Time = got.CreationTimestamp.UTC(), got.DeletionTimestamp.UTC()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
	if metadata, err := encode([]byte("{}")); err == nil {
		t.Errorf("an object without metadata: %q", metadata)
	}
}

func TestDecodeWhatIsNoObject(t *testing.T) {
	for _, value := range []string{"", "{}", "[]", `"metadata"`, `{"spec":{"metadata":{}}}`, `{"metadata":1}`, "\x00not an object", "k8s\x00", "k8s:enc:aescbc:v1:key:"} {
		if got, err := decode([]byte(value), 1); err == nil {
			t.Errorf("%q: %+v", value, got)
		}
	}
}
