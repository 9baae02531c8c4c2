// Package wire reads parts of messages in protobuf's encoding, in which Kubernetes stores and sends objects.
// Callers that need a small part of an object do not pay for decoding all of it.
//
// Each and Field find fields by their numbers. Fields.Keep copies a message without the fields that are not
// needed; the type's own code decodes the copy. The numbers come from the generated.proto beside each type,
// and never change.
package wire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// Prefix is the prefix of an object that is encoded as protobuf. A runtime.Unknown follows.
const Prefix = "k8s\x00"

// RawOfUnknown is the field of a runtime.Unknown with the object.
const RawOfUnknown = 2

// Object returns the message of an object that is encoded as protobuf. ok is false for any other object.
func Object(data []byte) (message []byte, ok bool, err error) {
	unknown, ok := bytes.CutPrefix(data, []byte(Prefix))
	if !ok {
		return nil, false, nil
	}
	message, err = Field(unknown, RawOfUnknown)
	return message, true, err
}

// Field returns the value of a field of a message, and an error if the message lacks it.
func Field(message []byte, wanted int32) (found []byte, err error) {
	err = Each(message, func(number int32, value []byte, _ uint64) error {
		if number == wanted && value != nil {
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

// errFound ends Each.
var errFound = errors.New("the field is found")

// Each calls read for the fields of a message, until read returns an error. read gets the value, not nil, of
// a string or message, or the number of a number field.
func Each(message []byte, read func(number int32, value []byte, varint uint64) error) error {
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

// maxField bounds the size of a field of a list: objects have 3 MB at most.
const maxField = 64 << 20

// EachOfList calls read for the fields of a list that is encoded as protobuf, while it reads the list. A
// value is valid until read returns, and read must not keep it.
func EachOfList(in *bufio.Reader, read func(number int32, value []byte) error) error {
	if prefix, err := in.Discard(len(Prefix)); err != nil || prefix != len(Prefix) {
		return unexpected(err)
	}
	for {
		number, size, err := header(in)
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("there is no field %d", RawOfUnknown)
		}
		if err != nil {
			return err
		}
		if number == RawOfUnknown {
			return eachIn(&io.LimitedReader{R: in, N: int64(size)}, read)
		}
		if _, err := in.Discard(size); err != nil {
			return unexpected(err)
		}
	}
}

// eachIn calls read for the fields of a message, all of which are strings or messages.
func eachIn(message *io.LimitedReader, read func(number int32, value []byte) error) error {
	in := bufio.NewReaderSize(message, 64<<10)
	var value []byte
	for {
		number, size, err := header(in)
		switch {
		case errors.Is(err, io.EOF) && message.N == 0:
			return nil
		case err != nil:
			return unexpected(err)
		case size > maxField:
			return fmt.Errorf("field %d has %d bytes", number, size)
		}
		value = slices.Grow(value[:0], size)[:size]
		if _, err := io.ReadFull(in, value); err != nil {
			return unexpected(err)
		}
		if err := read(number, value); err != nil {
			return err
		}
	}
}

// header reads the tag and the size of a field that is a string or a message.
func header(in *bufio.Reader) (number int32, size int, err error) {
	tag, err := binary.ReadUvarint(in)
	if err != nil {
		return 0, 0, err
	}
	field, kind := protowire.DecodeTag(tag)
	if kind != protowire.BytesType {
		return 0, 0, fmt.Errorf("field %d is neither a string nor a message", field)
	}
	length, err := binary.ReadUvarint(in)
	if err != nil || length > math.MaxInt {
		return 0, 0, unexpected(err)
	}
	return int32(field), int(length), nil
}

// unexpected returns the error for a truncated message.
func unexpected(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Fields are the fields of a message that are kept, by number: with nil Fields as a whole, otherwise reduced
// to these.
type Fields map[int32]Fields

// Keep appends a message, reduced to f, to dst.
func (f Fields) Keep(dst, message []byte) ([]byte, error) {
	for len(message) > 0 {
		number, kind, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return nil, protowire.ParseError(tag)
		}
		n := protowire.ConsumeFieldValue(number, kind, message[tag:])
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		parts, isKept := f[int32(number)]
		switch {
		case !isKept:
		case parts == nil || kind != protowire.BytesType:
			dst = append(dst, message[:tag+n]...)
		default:
			value, _ := protowire.ConsumeBytes(message[tag:])
			dst = append(dst, message[:tag]...)
			at := len(dst)
			var err error
			if dst, err = parts.Keep(dst, value); err != nil {
				return nil, err
			}
			dst = slices.Insert(dst, at, protowire.AppendVarint(nil, uint64(len(dst)-at))...)
		}
		message = message[tag+n:]
	}
	return dst, nil
}
