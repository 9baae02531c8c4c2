package storemetadata

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// protobufPrefix is what objects begin with that are stored as protobuf. All others are JSON.
const protobufPrefix = "k8s\x00"

// The numbers of the fields that are read.
const (
	rawOfUnknown        = 2  // the object, in runtime.Unknown
	metadataOfObject    = 1  // in all kinds
	managedFieldsOfMeta = 17 // in ObjectMeta
)

// typeOfMetadata returns the type that the API gives to the metadata of objects.
func typeOfMetadata() metav1.TypeMeta {
	return metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: metav1.SchemeGroupVersion.String()}
}

// decode returns the metadata of a stored object, without its managed fields. The rest of the object
// is not looked at.
func decode(value []byte, revision int64) (*metav1.PartialObjectMetadata, error) {
	object := &metav1.PartialObjectMetadata{TypeMeta: typeOfMetadata()}
	var err error
	if message, ok := bytes.CutPrefix(value, []byte(protobufPrefix)); ok {
		err = decodeProtobuf(message, &object.ObjectMeta)
	} else {
		err = decodeJSON(value, &object.ObjectMeta)
	}
	if err != nil {
		return nil, err
	}
	object.ManagedFields = nil
	object.ResourceVersion = strconv.FormatInt(revision, 10)
	return object, nil
}

func decodeProtobuf(message []byte, into *metav1.ObjectMeta) error {
	raw, err := field(message, rawOfUnknown)
	if err != nil {
		return err
	}
	metadata, err := field(raw, metadataOfObject)
	if err != nil {
		return err
	}
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

// field returns the value of a field of a message, and an error if it does not have it.
func field(message []byte, wanted protowire.Number) (found []byte, err error) {
	err = eachField(message, func(number int32, value []byte, _ uint64) error {
		if number == int32(wanted) && value != nil {
			found = value
			return errFound
		}
		return nil
	})
	switch {
	case errors.Is(err, errFound):
		return found, nil
	case err != nil:
		return nil, err
	default:
		return nil, fmt.Errorf("there is no field %d", wanted)
	}
}

// errFound ends eachField.
var errFound = errors.New("the field is found")

// eachField calls read for the fields of a message, until that returns an error: with the value of
// strings and messages, which is not nil, or with that of numbers.
func eachField(message []byte, read func(number int32, value []byte, varint uint64) error) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		var value []byte
		var varint uint64
		switch kind {
		case protowire.BytesType:
			value, n = protowire.ConsumeBytes(message)
		case protowire.VarintType:
			varint, n = protowire.ConsumeVarint(message)
		default:
			n = protowire.ConsumeFieldValue(number, kind, message)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		if err := read(int32(number), value, varint); err != nil {
			return err
		}
		message = message[n:]
	}
	return nil
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
