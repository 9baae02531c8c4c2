package storage

import (
	"bytes"
	"crypto/sha256"
	"io"
	"slices"
	"sync"
	"weak"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/collect/wire"
)

// sharedSpecs is the codec of writes of CustomResourceDefinitions, and of the watch that fills
// their watch cache. The decoded objects share their specification with other decoded objects that
// have the same one, and with the written object.
//
// Most of a definition is the schema, which takes a hundred kilobytes and more. It is the same in
// the object of a request, in the event of the write, and in all later writes of the status; the
// history of the cache has each state, and the one before it, for more than a minute. Objects in a
// watch cache and specifications of written objects never change.
type sharedSpecs struct {
	runtime.Codec

	mu    sync.Mutex
	known map[specSum]weak.Pointer[apiextensions.CustomResourceDefinition] // guarded by mu
	sweep int                                                              // guarded by mu; the size of known at which unused definitions are removed
}

// specSum identifies a specification by its stored bytes.
type specSum [sha256.Size]byte

// minSweep is the least value of sweep.
const minSweep = 64

// withSharedSpecs returns the codec of a resource's writes and watch.
func withSharedSpecs(codec runtime.Codec, resource schema.GroupResource) runtime.Codec {
	if resource != apiextensions.Resource("customresourcedefinitions") {
		return codec
	}
	return &sharedSpecs{Codec: codec, known: make(map[specSum]weak.Pointer[apiextensions.CustomResourceDefinition]), sweep: minSweep}
}

// Encode implements runtime.Encoder.
func (s *sharedSpecs) Encode(object runtime.Object, w io.Writer) error {
	definition, ok := object.(*apiextensions.CustomResourceDefinition)
	if !ok {
		return s.Codec.Encode(object, w)
	}
	definition = asFromJSON(definition)
	var data bytes.Buffer
	if err := s.Codec.Encode(definition, &data); err != nil {
		return err
	}
	if _, spec, ok := cutSpec(data.Bytes()); ok {
		s.remember(sha256.Sum256(spec), definition)
	}
	_, err := w.Write(data.Bytes())
	return err
}

// asFromJSON returns the definition as upstream reads it, which stores JSON: where additional properties or items have a
// schema, they are allowed. In protobuf, a client can leave that out, and all instances that have some would be refused.
func asFromJSON(definition *apiextensions.CustomResourceDefinition) *apiextensions.CustomResourceDefinition {
	refuses := false
	visitSchemas(definition, func(p *apiextensions.JSONSchemaPropsOrBool) { refuses = refuses || !p.Allows })
	if refuses {
		definition = definition.DeepCopy()
		visitSchemas(definition, func(p *apiextensions.JSONSchemaPropsOrBool) { p.Allows = true })
	}
	return definition
}

// visitSchemas calls a function for each schema of additional properties or items in a definition.
func visitSchemas(definition *apiextensions.CustomResourceDefinition, visit func(*apiextensions.JSONSchemaPropsOrBool)) {
	each := func(s *apiextensions.JSONSchemaProps) bool {
		for _, p := range []*apiextensions.JSONSchemaPropsOrBool{s.AdditionalProperties, s.AdditionalItems} {
			if p != nil && p.Schema != nil {
				visit(p)
			}
		}
		return false
	}
	if v := definition.Spec.Validation; v != nil {
		validation.SchemaHas(v.OpenAPIV3Schema, each)
	}
	for _, version := range definition.Spec.Versions {
		if version.Schema != nil {
			validation.SchemaHas(version.Schema.OpenAPIV3Schema, each)
		}
	}
}

// Decode implements runtime.Decoder. If it knows the specification of a definition, it decodes only
// the rest.
func (s *sharedSpecs) Decode(data []byte, kind *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	rest, spec, ok := cutSpec(data)
	if !ok || into != nil {
		return s.Codec.Decode(data, kind, into)
	}
	sum := sha256.Sum256(spec)
	if known := s.find(sum); known != nil {
		object, found, err := s.Codec.Decode(rest, kind, nil)
		// Without stored versions, the defaults come from the specification.
		if definition, ok := object.(*apiextensions.CustomResourceDefinition); ok && err == nil && len(definition.Status.StoredVersions) > 0 {
			definition.Spec = known.Spec
			s.remember(sum, definition)
			return definition, found, nil
		}
	}
	object, found, err := s.Codec.Decode(data, kind, nil)
	if definition, ok := object.(*apiextensions.CustomResourceDefinition); ok && err == nil {
		s.remember(sum, definition)
	}
	return object, found, err
}

// find returns a definition with the specification, or nil.
func (s *sharedSpecs) find(sum specSum) *apiextensions.CustomResourceDefinition {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[sum].Value()
}

func (s *sharedSpecs) remember(sum specSum, definition *apiextensions.CustomResourceDefinition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[sum] = weak.Make(definition)
	if len(s.known) < s.sweep {
		return
	}
	for sum, known := range s.known {
		if known.Value() == nil {
			delete(s.known, sum)
		}
	}
	s.sweep = max(minSweep, 2*len(s.known))
}

// specOfObject is the field of the specification in an object.
const specOfObject = 2

// cutSpec splits an object in protobuf into the specification and the rest.
func cutSpec(data []byte) (rest, spec []byte, ok bool) {
	message, ok := bytes.CutPrefix(data, []byte(wire.Prefix))
	if !ok {
		return nil, nil, false
	}
	before, raw, after, ok := cutField(message, wire.RawOfUnknown)
	if !ok {
		return nil, nil, false
	}
	beforeSpec, spec, afterSpec, ok := cutField(raw, specOfObject)
	if !ok {
		return nil, nil, false
	}
	rest = slices.Concat([]byte(wire.Prefix), before)
	rest = protowire.AppendTag(rest, wire.RawOfUnknown, protowire.BytesType)
	rest = protowire.AppendVarint(rest, uint64(len(beforeSpec)+len(afterSpec)))
	return slices.Concat(rest, beforeSpec, afterSpec, after), spec, true
}

// cutField returns the value of a field of a message, and the bytes before and after the field. The
// value is a message, too.
func cutField(message []byte, wanted protowire.Number) (before, value, after []byte, ok bool) {
	for at := 0; at < len(message); {
		number, kind, tag := protowire.ConsumeTag(message[at:])
		if tag < 0 {
			return nil, nil, nil, false
		}
		n := protowire.ConsumeFieldValue(number, kind, message[at+tag:])
		if n < 0 {
			return nil, nil, nil, false
		}
		end := at + tag + n
		if number == wanted && kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(message[at+tag:])
			return message[:at], value, message[end:], true
		}
		at = end
	}
	return nil, nil, nil, false
}
