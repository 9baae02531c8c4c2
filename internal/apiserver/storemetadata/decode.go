package storemetadata

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/collect/wire"
)

// The numbers of the fields that are read.
const (
	metadataOfObject    = 1  // in all kinds
	managedFieldsOfMeta = 17 // in ObjectMeta
)

// typeOfMetadata returns the type that the API gives to the metadata of objects.
func typeOfMetadata() metav1.TypeMeta {
	return metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: metav1.SchemeGroupVersion.String()}
}

// decode returns the metadata of a stored object, without its managed fields. It does not read the
// rest of the object.
func decode(value []byte, revision int64) (*metav1.PartialObjectMetadata, error) {
	object := &metav1.PartialObjectMetadata{TypeMeta: typeOfMetadata()}
	metadata, isProtobuf, err := encodedMetadata(value)
	switch {
	case err != nil:
	case isProtobuf:
		err = decodeProtobuf(metadata, &object.ObjectMeta)
	default:
		err = decodeJSON(value, &object.ObjectMeta)
	}
	if err != nil {
		return nil, err
	}
	object.ManagedFields = nil
	object.ResourceVersion = strconv.FormatInt(revision, 10)
	return object, nil
}

// encodedMetadata returns the part of a stored object that is its metadata in protobuf. isProtobuf is false for an object
// in JSON.
func encodedMetadata(value []byte) (metadata []byte, isProtobuf bool, err error) {
	message, isProtobuf, err := wire.Object(value)
	if err != nil || !isProtobuf {
		return nil, false, err
	}
	metadata, err = wire.Field(message, metadataOfObject)
	return metadata, true, err
}

// encode returns the metadata of a stored object in protobuf, whatever it is stored in.
func encode(value []byte) ([]byte, error) {
	metadata, isProtobuf, err := encodedMetadata(value)
	if err != nil || isProtobuf {
		return metadata, err
	}
	var decoded metav1.ObjectMeta
	if err := decodeJSON(value, &decoded); err != nil {
		return nil, err
	}
	return decoded.Marshal()
}

func decodeProtobuf(metadata []byte, into *metav1.ObjectMeta) error {
	// Managed fields are most of the metadata, and come last.
	end := 0
	for end < len(metadata) {
		number, _, n := protowire.ConsumeField(metadata[end:])
		if n < 0 {
			return protowire.ParseError(n)
		}
		if number >= managedFieldsOfMeta {
			break
		}
		end += n
	}
	return into.Unmarshal(metadata[:end])
}

// decodeJSON reads only as far as the metadata, which come before the specification: a
// CustomResourceDefinition may have a megabyte after them.
func decodeJSON(value []byte, into *metav1.ObjectMeta) error {
	decoder := json.NewDecoder(bytes.NewReader(value))
	if token, err := decoder.Token(); err != nil || token != json.Delim('{') {
		return errors.Join(errors.New("it is not an object"), err)
	}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return fmt.Errorf("read a field's name: %w", err)
		}
		if name == "metadata" {
			return decoder.Decode(&withoutManagedFields{ObjectMeta: into})
		}
		var skipped json.RawMessage
		if err := decoder.Decode(&skipped); err != nil {
			return fmt.Errorf("read %v: %w", name, err)
		}
	}
	return errors.New("it has no metadata")
}

// withoutManagedFields decodes metadata except for the managed fields.
type withoutManagedFields struct {
	*metav1.ObjectMeta
	// ManagedFields hides the field of the same name.
	ManagedFields json.RawMessage `json:"managedFields"`
}

// corrupt is the error for a stored object that cannot be decoded.
func corrupt(key string, err error) error {
	return fmt.Errorf("the object at %s cannot be decoded: %w", key, err)
}
