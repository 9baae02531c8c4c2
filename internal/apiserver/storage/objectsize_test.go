package storage

import (
	"io"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// The size of an object is near the size of its longest text, in any field, and for each type of object.
func TestSizeIsNearTheLongestText(t *testing.T) {
	const n = 1 << 20
	long := strings.Repeat("x", n)
	metadata := metav1.ObjectMeta{Name: "a", OwnerReferences: []metav1.OwnerReference{{UID: "u"}, {Kind: long}}}
	custom := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"list": []any{int64(1), map[string]any{"text": long}}}}}
	for name, object := range map[string]runtime.Object{
		"protobuf":        &corev1.ConfigMap{ObjectMeta: metadata},
		"data":            &corev1.Secret{Data: map[string][]byte{"a": []byte(long)}},
		"custom":          custom,
		"shared":          &sharedObject{Object: &corev1.ConfigMap{ObjectMeta: metadata}},
		"without methods": &plainObject{Text: long},
	} {
		if got := SizeOf(object); got < n || got > n+200 {
			t.Errorf("%s: an object with a text of %d bytes has %d", name, n, got)
		}
	}
	shared := &sharedObject{Object: custom}
	if first, second := SizeOf(shared), SizeOf(shared); first != second || shared.encoded != 1 {
		t.Errorf("an object that watches share is measured %d times", shared.encoded)
	}
}

type plainObject struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Text string
}

func (p *plainObject) DeepCopyObject() runtime.Object { return p }

// sharedObject encodes once, like the objects that a watch cache passes to several watches.
type sharedObject struct {
	runtime.Object
	raw     strings.Builder
	encoded int
}

func (s *sharedObject) CacheEncode(_ runtime.Identifier, encode func(runtime.Object, io.Writer) error, to io.Writer) error {
	if s.encoded == 0 {
		s.encoded++
		if err := encode(s.Object, &s.raw); err != nil {
			return err
		}
	}
	_, err := io.WriteString(to, s.raw.String())
	return err
}

func (s *sharedObject) GetObject() runtime.Object { return s.Object }
