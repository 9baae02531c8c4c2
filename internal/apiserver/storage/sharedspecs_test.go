package storage

import (
	"encoding/json"
	"runtime"
	"strconv"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// definitionCodec decodes the metadata of a definition, and makes a schema for it.
type definitionCodec struct{ apiruntime.Codec }

func (definitionCodec) Decode(data []byte, _ *schema.GroupVersionKind, _ apiruntime.Object) (apiruntime.Object, *schema.GroupVersionKind, error) {
	d := &apiextensions.CustomResourceDefinition{}
	d.Spec.Validation = &apiextensions.CustomResourceValidation{}
	return d, nil, json.Unmarshal(data, &d.ObjectMeta)
}

func TestSpecsAreShared(t *testing.T) {
	codec := withSharedSpecs(definitionCodec{}, apiextensions.Resource("customresourcedefinitions"))
	decode := func(uid string, generation int64) *apiextensions.CustomResourceDefinition {
		t.Helper()
		data, err := json.Marshal(metav1.ObjectMeta{UID: types.UID(uid), Generation: generation})
		must(t, err)
		object, _, err := codec.Decode(data, nil, nil)
		must(t, err)
		return object.(*apiextensions.CustomResourceDefinition)
	}
	first, second, other := decode("a", 1), decode("a", 1), decode("b", 1)
	next, before, again := decode("a", 2), decode("a", 1), decode("a", 2)
	for name, test := range map[string]struct {
		x, y *apiextensions.CustomResourceDefinition
		want bool
	}{
		"one generation":             {first, second, true},
		"two definitions":            {first, other, false},
		"two generations":            {second, next, false},
		"the generation before":      {next, before, false},
		"the next generation, again": {next, again, true},
	} {
		if test.x == test.y {
			t.Errorf("%s: they are the same object", name)
		}
		if got := test.x.Spec.Validation == test.y.Spec.Validation; got != test.want {
			t.Errorf("%s: shared is %t, want %t", name, got, test.want)
		}
	}
	if same := withSharedSpecs(definitionCodec{}, schema.GroupResource{Resource: "configmaps"}); same != (definitionCodec{}) {
		t.Errorf("the codec of another resource is %T", same)
	}
}

// Definitions that are gone are not remembered.
func TestSharedSpecsAreForgotten(t *testing.T) {
	codec := withSharedSpecs(definitionCodec{}, apiextensions.Resource("customresourcedefinitions")).(*sharedSpecs)
	for i := range 20 * minSweep {
		data, err := json.Marshal(metav1.ObjectMeta{UID: types.UID(strconv.Itoa(i)), Generation: 1})
		must(t, err)
		_, _, err = codec.Decode(data, nil, nil)
		must(t, err)
		if i%minSweep == 0 {
			runtime.GC()
		}
	}
	if n := len(codec.known); n > 4*minSweep {
		t.Errorf("%d definitions are remembered", n)
	}
}
