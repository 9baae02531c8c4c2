package wire_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/coppice-dev/coppice/internal/collect/wire"
)

func pod(name string) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"long": strings.Repeat("x", 300)}},
		Spec: corev1.PodSpec{
			NodeName:   "n1",
			Containers: []corev1.Container{{Name: "main", Image: "image", Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{}}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1"},
	}
}

// encoded returns what a server sends.
func encoded(t *testing.T, object runtime.Object) []byte {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	object.GetObjectKind().SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	var text bytes.Buffer
	if err := protobuf.NewSerializer(scheme, scheme).Encode(object, &text); err != nil {
		t.Fatal(err)
	}
	return text.Bytes()
}

// The kept fields of a message decode to the same values, and the others are gone.
func TestKeptFieldsDecodeToTheSameValues(t *testing.T) {
	whole := pod("p")
	message, err := whole.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	kept, err := wire.Fields{1: {1: nil}, 2: {2: {12: nil}}, 3: {1: nil}}.Keep(nil, message)
	if err != nil {
		t.Fatal(err)
	}
	var got corev1.Pod
	if err := got.Unmarshal(kept); err != nil {
		t.Fatal(err)
	}
	want := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Lifecycle: whole.Spec.Containers[0].Lifecycle}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	// A truncated message is an error, at any position.
	for n := range message {
		if kept, err := (wire.Fields{1: nil, 2: nil, 3: nil}).Keep(nil, message[:n]); err == nil && !bytes.Equal(kept, message[:n]) {
			t.Fatalf("%d bytes of it are kept as %q", n, kept)
		}
	}
}

// A list is read as it arrives, in pieces of any size, and a truncated list is an error.
func TestListIsReadInPieces(t *testing.T) {
	list := &corev1.PodList{ListMeta: metav1.ListMeta{Continue: "here"}, Items: []corev1.Pod{pod("a"), pod("b"), {}, pod("c")}}
	text := encoded(t, list)
	read := func(from io.Reader) (names []string, err error) {
		err = wire.EachOfList(bufio.NewReaderSize(from, 16), func(number int32, value []byte) error {
			if number != 2 {
				return nil
			}
			var p corev1.Pod
			if err := p.Unmarshal(value); err != nil {
				return err
			}
			names = append(names, p.Name)
			return nil
		})
		return names, err
	}
	names, err := read(iotest{bytes.NewReader(text)})
	if diff := cmp.Diff([]string{"a", "b", "", "c"}, names); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	end := bytes.LastIndex(text, []byte("10.0.0.1")) // of the last pod
	for n := range end {
		if _, err := read(bytes.NewReader(text[:n])); err == nil {
			t.Fatalf("%d of %d bytes are taken for a whole list", n, len(text))
		}
	}
	stop := errors.New("stop")
	if err := wire.EachOfList(bufio.NewReader(bytes.NewReader(text)), func(int32, []byte) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("whoever reads wants to stop: %v", err)
	}
}

// iotest returns one byte at a time.
type iotest struct{ io.Reader }

func (r iotest) Read(p []byte) (int, error) { return r.Reader.Read(p[:min(1, len(p))]) }

// TestDamagedProtobufIsDistinguishedFromOtherFormats: data that is not protobuf is distinguished from damaged data.
func TestDamagedProtobufIsDistinguishedFromOtherFormats(t *testing.T) {
	text := encoded(t, &corev1.PodList{Items: []corev1.Pod{pod("a")}})
	for _, test := range []struct {
		what      string
		data      []byte
		ok, fails bool
	}{
		{"protobuf", text, true, false},
		{"JSON", []byte(`{"kind":"Pod"}`), false, false},
		{"damaged", text[:len(text)/2], true, true},
		{"nothing in it", []byte(wire.Prefix), true, true},
	} {
		if _, ok, err := wire.Object(test.data); ok != test.ok || (err != nil) != test.fails {
			t.Errorf("%s: %v, %v", test.what, ok, err)
		}
	}
}
