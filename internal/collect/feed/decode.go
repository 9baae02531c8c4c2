package feed

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/coppice-dev/coppice/internal/collect/wire"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// The numbers of the fields of ObjectMeta, OwnerReference and Time that an observation has, as in generated.proto.
const (
	metaName, metaNamespace, metaUID, metaVersion = 1, 3, 5, 6
	metaDeletion, metaLabels                      = 9, 11
	metaOwners, metaFinalizers                    = 13, 14
	ownerKind, ownerName, ownerUID, ownerVersion  = 1, 3, 4, 5
	ownerIsController, ownerBlocks                = 6, 7
	secondsOfTime                                 = 1
	keyOfLabel, valueOfLabel                      = 1, 2
)

// keptOfMetadata returns the fields of metadata that an observation has.
func keptOfMetadata() wire.Fields {
	return wire.Fields{
		metaName: nil, metaNamespace: nil, metaUID: nil, metaVersion: nil, metaDeletion: nil, metaLabels: nil, metaOwners: nil, metaFinalizers: nil,
	}
}

// decoder decodes metadata of objects. Its buffers are reused.
type decoder struct {
	fields wire.Fields
	kept   []byte // the kept fields of the last object
	// text has the texts of the objects of a part, and owners their references. The texts of thousands of objects that
	// nobody keeps take two allocations.
	text   strings.Builder
	owners []ownership.Reference
}

const (
	// textSize is the size of a block of texts, in bytes, and ownersSize the number of references in a block.
	textSize   = 64 << 10
	ownersSize = partSize
)

// reset makes room for the next objects: the ones before have been passed on.
func (d *decoder) reset() {
	d.text.Reset()
	d.owners = nil
}

// metadata decodes the metadata of an object: of a bookmark all, otherwise the fields of an observation.
func (d *decoder) metadata(of watch.EventType, message []byte) (*metav1.PartialObjectMetadata, error) {
	object := &metav1.PartialObjectMetadata{}
	if of == watch.Bookmark {
		return object, object.ObjectMeta.Unmarshal(message)
	}
	if d.fields == nil {
		d.fields = keptOfMetadata()
	}
	var err error
	if d.kept, err = d.fields.Keep(d.kept[:0], message); err != nil {
		return nil, err
	}
	return object, object.ObjectMeta.Unmarshal(d.kept)
}

// object decodes an observation from the metadata of an object.
func (d *decoder) object(kind ownership.Kind, message []byte) (ownership.Object, error) {
	o := ownership.Object{Kind: kind}
	isDeleting, first := false, len(d.owners)
	err := wire.Each(message, func(number int32, value []byte, _ uint64) (err error) {
		switch number {
		case metaName:
			o.Name = d.keep(value)
		case metaNamespace:
			o.Namespace = d.keep(value)
		case metaUID:
			o.UID = ownership.UID(d.keep(value))
		case metaVersion:
			o.ResourceVersion = d.keep(value)
		case metaDeletion:
			isDeleting = true
			o.Due, err = secondsOf(value)
		case metaLabels:
			var isMark bool
			isMark, err = isProtectionMark(value)
			o.Protected = o.Protected || isMark
		case metaOwners:
			err = d.reference(value)
		case metaFinalizers:
			o.Finalizers = append(o.Finalizers, string(value))
		}
		return err
	})
	if len(d.owners) > first {
		o.Owners = d.owners[first:len(d.owners):len(d.owners)]
	}
	o.Phase = ownership.PhaseOf(isDeleting, o.Finalizers)
	if isDeleting || o.Protected {
		detach(&o)
	}
	return ownership.Bounded(o), err
}

// detach gives an object texts of its own. The stories keep texts of objects that are being deleted or protected: each
// would keep the whole block.
func detach(o *ownership.Object) {
	o.UID, o.Namespace, o.Name = ownership.UID(strings.Clone(string(o.UID))), strings.Clone(o.Namespace), strings.Clone(o.Name)
	o.ResourceVersion = strings.Clone(o.ResourceVersion)
	o.Owners = slices.Clone(o.Owners)
	for i := range o.Owners {
		r := &o.Owners[i]
		r.APIVersion, r.Kind, r.Name, r.UID = strings.Clone(r.APIVersion), strings.Clone(r.Kind), strings.Clone(r.Name), ownership.UID(strings.Clone(string(r.UID)))
	}
}

// reference decodes an owner reference, to the end of d.owners.
func (d *decoder) reference(message []byte) error {
	var r ownership.Reference
	err := wire.Each(message, func(number int32, value []byte, varint uint64) error {
		switch number {
		case ownerKind:
			r.Kind = d.keep(value)
		case ownerName:
			r.Name = d.keep(value)
		case ownerUID:
			r.UID = ownership.UID(d.keep(value))
		case ownerVersion:
			r.APIVersion = d.keep(value)
		case ownerIsController:
			r.Controller = flagOfNumber(varint)
		case ownerBlocks:
			r.BlockOwnerDeletion = flagOfNumber(varint)
		}
		return nil
	})
	if d.owners == nil {
		d.owners = make([]ownership.Reference, 0, ownersSize)
	}
	d.owners = append(d.owners, r)
	return err
}

// keep returns a copy of a text, in the block.
func (d *decoder) keep(text []byte) string {
	if len(text) > d.text.Cap()-d.text.Len() {
		d.text.Reset()
		d.text.Grow(max(textSize, len(text)))
	}
	start := d.text.Len()
	d.text.Write(text)
	return d.text.String()[start:]
}

func flagOfNumber(n uint64) ownership.Flag {
	if n != 0 {
		return ownership.True
	}
	return ownership.False
}

// secondsOf returns a time in seconds since 1970.
func secondsOf(message []byte) (seconds int64, err error) {
	err = wire.Each(message, func(number int32, _ []byte, varint uint64) error {
		if number == secondsOfTime {
			seconds = int64(varint)
		}
		return nil
	})
	return seconds, err
}

// isProtectionMark reports whether a label marks its object as protected.
func isProtectionMark(label []byte) (bool, error) {
	isLabel, value := false, ""
	err := wire.Each(label, func(number int32, text []byte, _ uint64) error {
		switch {
		case number == keyOfLabel:
			isLabel = string(text) == protection.Label
		case number == valueOfLabel && isLabel:
			value = string(text)
		}
		return nil
	})
	return isLabel && protection.IsMarked(map[string]string{protection.Label: value}), err
}
