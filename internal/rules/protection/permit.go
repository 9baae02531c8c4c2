package protection

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"slices"
)

// Permit is a set of objects that may be deleted: the closure of a deletion that somebody has confirmed, or that needed no
// confirmation. It has four bytes for each object. Of a hundred thousand objects that are not in a set of that size, it
// takes about two for members; UIDs are chosen by servers, so nobody can look for these.
type Permit []uint32

// mostPermitted is the number of objects in one Permit, so that a store takes it: 400 KB.
const mostPermitted = 100_000

// NewPermits returns the permits of a set of objects, by their UIDs.
func NewPermits(uids []string) []Permit {
	all := make(Permit, len(uids))
	for i, uid := range uids {
		all[i] = member(uid)
	}
	var permits []Permit
	for part := range slices.Chunk(all, mostPermitted) {
		slices.Sort(part)
		permits = append(permits, part)
	}
	return permits
}

func member(uid string) uint32 {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(uid))
	return hash.Sum32()
}

// Has reports whether an object is in the set.
func (p Permit) Has(uid string) bool {
	_, isMember := slices.BinarySearch(p, member(uid))
	return isMember
}

// Encode returns the permit for a store.
func (p Permit) Encode() []byte {
	text := make([]byte, 0, 4*len(p))
	for _, m := range p {
		text = binary.BigEndian.AppendUint32(text, m)
	}
	return text
}

// DecodePermit returns the permit that Encode has encoded.
func DecodePermit(text []byte) (Permit, error) {
	if len(text)%4 != 0 || len(text) > 4*mostPermitted {
		return nil, errors.New("this is no permit of a deletion")
	}
	p := make(Permit, 0, len(text)/4)
	for ; len(text) > 0; text = text[4:] {
		p = append(p, binary.BigEndian.Uint32(text))
	}
	return p, nil
}
