package storage

import (
	"encoding/binary"
	"encoding/json"
	"io"

	"k8s.io/apimachinery/pkg/runtime"
)

// sizeIdentifier identifies the "encoding" of an object as its size.
const sizeIdentifier runtime.Identifier = "coppice-size"

// SizeOf returns the approximate number of bytes of an object.
func SizeOf(object runtime.Object) int {
	switch o := object.(type) {
	case runtime.CacheableObject: // it returns only copies, and encodes once for all watches
		var encoded sizeWriter
		_ = o.CacheEncode(sizeIdentifier, encodeSize, &encoded)
		return int(encoded)
	case interface{ Size() int }: // as protobuf
		return o.Size()
	case runtime.Unstructured:
		return sizeOfValue(o.UnstructuredContent())
	}
	encoded, err := json.Marshal(object)
	if err != nil {
		return mostBytes // it is an object of this process
	}
	return len(encoded)
}

func encodeSize(object runtime.Object, to io.Writer) error {
	_, err := to.Write(binary.BigEndian.AppendUint64(nil, uint64(SizeOf(object))))
	return err
}

// sizeWriter receives the output of encodeSize.
type sizeWriter int

// Write implements io.Writer.
func (s *sizeWriter) Write(encoded []byte) (int, error) {
	*s = sizeWriter(binary.BigEndian.Uint64(encoded))
	return len(encoded), nil
}

// sizeOfValue returns the approximate number of bytes of a value as JSON.
func sizeOfValue(value any) (size int) {
	const scalar = 8
	switch v := value.(type) {
	case string:
		return scalar + len(v)
	case map[string]any:
		for key, each := range v {
			size += scalar + len(key) + sizeOfValue(each)
		}
	case []any:
		for _, each := range v {
			size += sizeOfValue(each)
		}
	}
	return size + scalar
}
