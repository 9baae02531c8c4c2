package builtin

import (
	"math/rand"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/equality"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
)

const fuzzRounds = 30

// newFuzzer returns a fuzzer for objects. The seed is printed when a test fails.
func newFuzzer(t *testing.T, s registry.Schemes) *randfill.Filler {
	t.Helper()
	seed := time.Now().UnixNano()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	own := func(serializer.CodecFactory) []any {
		return []any{
			func(v *intstr.IntOrString, c randfill.Continue) {
				*v = intstr.FromInt32(c.Int31())
				if c.Bool() {
					*v = intstr.FromString(c.String(0))
				}
			},
			func(v *runtime.RawExtension, c randfill.Continue) {
				*v = runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"Thing","n":1}`)}
			},
			// Validation refuses an empty list of policies, and an absent one has a default.
			func(v *autoscalingv2.HPAScalingRules, c randfill.Continue) {
				c.FillNoCustom(v)
				if len(v.Policies) == 0 {
					v.Policies = nil
				}
			},
			// Empty and absent are the same on the wire.
			func(v *[]byte, c randfill.Continue) {
				*v = nil
				if c.Bool() {
					*v = []byte(c.String(0) + "x")
				}
			},
		}
	}
	return fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, own), rand.NewSource(seed), s.Codecs)
}

// TestRoundTrip checks that an object comes back unchanged from the wire and from the storage, in each encoding.
func TestRoundTrip(t *testing.T) {
	schemes := NewSchemes()
	for _, mediaType := range []string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON} {
		info, ok := runtime.SerializerInfoForMediaType(schemes.Codecs.SupportedMediaTypes(), mediaType)
		if !ok {
			t.Fatalf("no serializer for %s", mediaType)
		}
		t.Run(mediaType, func(t *testing.T) {
			eachResource(t, func(t *testing.T, resource registry.Resource) {
				fill := newFuzzer(t, schemes)
				for range fuzzRounds {
					obj := resource.New()
					fill.Fill(obj)
					roundTrip(t, schemes, resource, info.Serializer, obj)
				}
			})
		})
	}
}

func roundTrip(t *testing.T, s registry.Schemes, resource registry.Resource, encoding runtime.Serializer, obj runtime.Object) {
	t.Helper()
	before := obj.DeepCopyObject()
	data, err := runtime.Encode(s.Codecs.EncoderForVersion(encoding, resource.GroupVersion), obj)
	if err != nil {
		t.Fatal(err)
	}
	if !equality.Semantic.DeepEqual(before, obj) {
		t.Error("encoding changes the object")
	}
	// The wire, without defaults.
	got, gvk, err := s.Codecs.UniversalDeserializer().Decode(data, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if *gvk != resource.GVK() {
		t.Errorf("comes back as a %v", gvk)
	}
	got.GetObjectKind().SetGroupVersionKind(obj.GetObjectKind().GroupVersionKind())
	if !equality.Semantic.DeepEqual(before, got) {
		t.Fatalf("comes back changed (-sent +got):\n%s", cmp.Diff(before, got))
	}
	// The storage, with defaults: to the type that k8s.io/apiserver uses as the internal version.
	want := before.DeepCopyObject()
	s.Hub.Default(want)
	stored, err := runtime.Decode(s.Codecs.DecoderToVersion(s.Codecs.UniversalDeserializer(), resource.GroupVersion), data)
	if err != nil {
		t.Fatal(err)
	}
	s.Hub.Default(stored)
	stored.GetObjectKind().SetGroupVersionKind(want.GetObjectKind().GroupVersionKind())
	if !equality.Semantic.DeepEqual(want, stored) {
		t.Fatalf("the storage changes it (-want +got):\n%s", cmp.Diff(want, stored))
	}
}

// TestStorageCodec checks that the codec with which k8s.io/apiserver stores decodes into the internal version, which is
// the same Go type, and applies defaults.
func TestStorageCodec(t *testing.T) {
	s := NewSchemes()
	eachResource(t, func(t *testing.T, resource registry.Resource) {
		info, _ := runtime.SerializerInfoForMediaType(s.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
		internal := resource.GroupVersion
		internal.Version = runtime.APIVersionInternal
		codec := s.Codecs.CodecForVersions(info.Serializer, s.Codecs.UniversalDeserializer(), resource.GroupVersion, internal)
		fill := newFuzzer(t, s)
		for range fuzzRounds {
			obj := resource.New()
			fill.Fill(obj)
			data, err := runtime.Encode(codec, obj)
			if err != nil {
				t.Fatal(err)
			}
			got := resource.New()
			if _, _, err := codec.Decode(data, nil, got); err != nil {
				t.Fatal(err)
			}
			s.Hub.Default(obj)
			got.GetObjectKind().SetGroupVersionKind(obj.GetObjectKind().GroupVersionKind())
			if !equality.Semantic.DeepEqual(obj, got) {
				t.Fatalf("(-want +got):\n%s", cmp.Diff(obj, got))
			}
		}
	})
}

// TestDefaultsAreStable checks that defaults do not change an object that has them, because they run on every read.
func TestDefaultsAreStable(t *testing.T) {
	s := NewSchemes()
	eachResource(t, func(t *testing.T, resource registry.Resource) {
		fill := newFuzzer(t, s)
		for range fuzzRounds {
			obj := resource.New()
			fill.Fill(obj)
			s.Hub.Default(obj)
			again := obj.DeepCopyObject()
			s.Hub.Default(again)
			if !equality.Semantic.DeepEqual(obj, again) {
				t.Fatalf("(-once +twice):\n%s", cmp.Diff(obj, again))
			}
		}
	})
}
