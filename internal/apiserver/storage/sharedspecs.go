package storage

import (
	"sync"
	"weak"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// sharedSpecs is the codec of the watch that fills the watch cache of CustomResourceDefinitions. The
// objects that it decodes share their specification with others of the same generation.
//
// A new definition is written three times within milliseconds, and the history of the cache has each
// state, and the one before it, for more than a minute. Nearly all of a state is the schema, which
// takes a hundred kilobytes and more, and is the same in all of them. Objects in a watch cache are
// never changed.
type sharedSpecs struct {
	runtime.Codec

	mu    sync.Mutex
	known map[types.UID]weak.Pointer[apiextensions.CustomResourceDefinition] // guarded by mu
	sweep int                                                                // guarded by mu; the size of known at which those that are gone are removed
}

// minSweep is the smallest number of definitions that are remembered.
const minSweep = 64

// withSharedSpecs returns the codec of a resource's watch.
func withSharedSpecs(codec runtime.Codec, resource schema.GroupResource) runtime.Codec {
	if resource != apiextensions.Resource("customresourcedefinitions") {
		return codec
	}
	return &sharedSpecs{Codec: codec, known: make(map[types.UID]weak.Pointer[apiextensions.CustomResourceDefinition]), sweep: minSweep}
}

// Decode implements runtime.Decoder.
func (s *sharedSpecs) Decode(data []byte, kind *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	object, found, err := s.Codec.Decode(data, kind, into)
	if definition, ok := object.(*apiextensions.CustomResourceDefinition); ok && err == nil {
		s.share(definition)
	}
	return object, found, err
}

func (s *sharedSpecs) share(definition *apiextensions.CustomResourceDefinition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.known[definition.UID].Value(); known != nil {
		if known.Generation > definition.Generation {
			return // this is the state before
		}
		if known.Generation == definition.Generation {
			definition.Spec = known.Spec
		}
	}
	s.known[definition.UID] = weak.Make(definition)
	if len(s.known) >= s.sweep {
		for uid, known := range s.known {
			if known.Value() == nil {
				delete(s.known, uid)
			}
		}
		s.sweep = max(minSweep, 2*len(s.known))
	}
}
