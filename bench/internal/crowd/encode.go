package crowd

import (
	"encoding/binary"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Fields of the messages, from the generated.proto of k8s.io/apimachinery.
const (
	metaName, metaGenerateName, metaNamespace, metaUID, metaVersion, metaCreated, metaLabels, metaOwners = 1, 2, 3, 5, 6, 8, 11, 13

	ownerKind, ownerName, ownerUID, ownerVersion, ownerController, ownerBlocks = 1, 3, 4, 5, 6, 7

	unknownType, unknownRaw           = 1, 2
	unknownEncoding, unknownMediaType = 3, 4
	typeVersion, typeKind             = 1, 2
	eventType, eventObject            = 1, 2
	rawBytes                          = 1
	objectMeta                        = 1
	listMeta, listItems               = 1, 2
	mapKey, mapValue                  = 1, 2
	timeSeconds                       = 1
)

const (
	// magic is the prefix of an object that is encoded as protobuf.
	magic = "k8s\x00"
	// lengthBytes is the size of the length before an event.
	lengthBytes = 4
	// created is the time of the oldest object, in seconds since 1970.
	created = 1_760_000_000
	// instanceLabel has the name of the object without owners that all of its dependents have.
	instanceLabel = "app.kubernetes.io/instance"
)

// encoder encodes objects. It is not safe for concurrent use.
type encoder struct {
	population *Population
	name       []byte
	owner      []byte // an encoded owner reference
	message    []byte
}

// meta returns the encoded ObjectMeta of an object at a revision. It is valid until the next call.
func (e *encoder) meta(c *cohort, i int, revision uint64) []byte {
	n := c.first + Number(i)
	to := e.message[:0]
	rootLength := e.nameOf(c, i)
	to = appendString(to, metaName, e.name)
	if c.kind.Namespaced {
		to = appendString(to, metaNamespace, e.population.namespaces[e.population.namespaceOf(c, i)])
	}
	to = append(to, metaUID<<3|byte(protowire.BytesType), uidLength)
	to = appendUID(to, n)
	to = appendString(to, metaVersion, strconv.AppendUint(make([]byte, 0, 20), revision, 10))
	to = append(to, metaCreated<<3|byte(protowire.BytesType), 6, timeSeconds<<3)
	to = binary.AppendUvarint(to, created+uint64(n))
	to = append(to, metaLabels<<3|byte(protowire.BytesType), byte(4+len(instanceLabel)+rootLength))
	to = appendString(to, mapKey, instanceLabel)
	to = appendString(to, mapValue, e.name[:rootLength])
	if c.owner != nil {
		to = append(to, metaOwners<<3|byte(protowire.BytesType))
		to = appendBytes(to, e.owner)
		if c.suffix == generated {
			to = appendString(to, metaGenerateName, e.name[:len(e.name)-randLength])
		}
	}
	e.message = append(to, c.constant...)
	return e.message
}

// nameOf sets the name and the owner reference of an object, and returns the length of the name of its root.
func (e *encoder) nameOf(c *cohort, i int) (rootLength int) {
	if c.owner == nil {
		e.name = e.population.appendName(e.name[:0], c, i)
		return len(e.name)
	}
	at := c.ownerOf(i)
	e.name = e.population.appendName(e.name[:0], c.owner, at)
	rootLength = len(c.root.word) + 1 + nameDigits
	to := appendString(e.owner[:0], ownerKind, c.owner.kind.Kind)
	to = appendString(to, ownerName, e.name)
	to = append(to, ownerUID<<3|byte(protowire.BytesType), uidLength)
	to = appendUID(to, c.owner.first+Number(at))
	to = appendString(to, ownerVersion, c.owner.kind.APIVersion())
	e.owner = append(to, ownerController<<3, 1, ownerBlocks<<3, 1)
	e.name = c.appendSuffix(e.name, i)
	return rootLength
}

func appendString[T string | []byte](to []byte, field byte, value T) []byte {
	return append(binary.AppendUvarint(append(to, field<<3|byte(protowire.BytesType)), uint64(len(value))), value...)
}

func appendBytes(to, value []byte) []byte {
	return append(binary.AppendUvarint(to, uint64(len(value))), value...)
}

// sizeOf returns the size of a field with a value of that size.
func sizeOf(size int) int { return 1 + protowire.SizeBytes(size) }

// appendHeader appends the header of a field whose value of that size follows.
func appendHeader(to []byte, field byte, size int) []byte {
	return binary.AppendUvarint(append(to, field<<3|byte(protowire.BytesType)), uint64(size))
}

// itemSize returns the size of an object in a list, as field listItems.
func itemSize(meta int) int { return sizeOf(sizeOf(meta)) }

// appendItem appends an object of a list.
func appendItem(to, meta []byte) []byte {
	to = appendHeader(to, listItems, sizeOf(len(meta)))
	return append(appendHeader(to, objectMeta, len(meta)), meta...)
}

// envelope is the Unknown around an encoded object: the bytes before the object and its length, and the bytes after it.
type envelope struct{ before, after []byte }

// envelopeOf returns the envelope of objects of a type.
func envelopeOf(apiVersion, kind string) envelope {
	var t []byte
	t = appendString(t, typeVersion, apiVersion)
	t = appendString(t, typeKind, kind)
	after := appendString(nil, unknownEncoding, "")
	return envelope{before: append([]byte(magic), appendString(nil, unknownType, t)...), after: appendString(after, unknownMediaType, "")}
}

// size returns the size of an object with its envelope.
func (v envelope) size(object int) int { return len(v.before) + sizeOf(object) + len(v.after) }

// appendObject appends an object that has nothing but metadata.
func (v envelope) appendObject(to, meta []byte) []byte {
	to = appendHeader(append(to, v.before...), unknownRaw, sizeOf(len(meta)))
	to = append(appendHeader(to, objectMeta, len(meta)), meta...)
	return append(to, v.after...)
}

// appendEvent appends a frame of a watch: its length, and a WatchEvent with an object.
func (v envelope) appendEvent(to []byte, event string, meta []byte) []byte {
	object := v.size(sizeOf(len(meta)))
	raw := sizeOf(object)
	to = binary.BigEndian.AppendUint32(to, uint32(sizeOf(len(event))+sizeOf(raw)))
	to = appendString(to, eventType, event)
	to = appendHeader(to, eventObject, raw)
	to = appendHeader(to, rawBytes, object)
	return v.appendObject(to, meta)
}

// encodedMeta encodes metadata that differ from the population's.
func encodedMeta(meta *metav1.ObjectMeta) []byte {
	encoded, err := meta.Marshal()
	if err != nil {
		panic(err) // the type cannot fail
	}
	return encoded
}

// consumeField returns the number, the value and the size of the first field of a message. The size of an invalid field is
// negative.
func consumeField(message []byte) (number protowire.Number, value []byte, size int) {
	number, kind, tag := protowire.ConsumeTag(message)
	if tag < 0 {
		return 0, nil, tag
	}
	n := protowire.ConsumeFieldValue(number, kind, message[tag:])
	if n < 0 {
		return 0, nil, n
	}
	value = message[tag : tag+n]
	if kind == protowire.BytesType {
		value, _ = protowire.ConsumeBytes(message[tag:])
	}
	return number, value, tag + n
}
