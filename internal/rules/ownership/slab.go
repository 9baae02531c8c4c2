package ownership

import (
	"iter"
	"strings"
)

// The records of the graph live in slabs and refer to each other by index, four bytes each.
// That keeps a million objects within 120 bytes each (BenchmarkBuild), and leaves Go's own
// garbage collector almost no pointers to follow.

const (
	chunkBits = 9
	chunkSize = 1 << chunkBits
)

// slab holds records of one type. A record stays at its address until it is removed; its index is
// then reused. Index zero is never in use: it means no record, and reads as the zero record.
//
// A chunk without records is freed, except for one spare that is used next: records that come and
// go at the border of a chunk cause no allocation each time.
type slab[I ~uint32, T any] struct {
	indices[I]

	chunks []*[chunkSize]T
	none   *[chunkSize]T // in place of the freed chunks; its records stay zero
	spare  *[chunkSize]T // an empty chunk, or nil
}

func newSlab[I ~uint32, T any]() slab[I, T] {
	none := new([chunkSize]T)
	return slab[I, T]{indices: indices[I]{bits: chunkBits}, chunks: []*[chunkSize]T{none}, none: none}
}

func (s *slab[I, T]) at(i I) *T { return &s.chunks[i>>chunkBits][i&(chunkSize-1)] }

// add returns the index of a new record, which is zero.
func (s *slab[I, T]) add() I {
	i := s.take()
	chunk := int(i >> chunkBits)
	if chunk == len(s.chunks) {
		s.chunks = append(s.chunks, s.none)
	}
	if s.chunks[chunk] == s.none {
		s.chunks[chunk], s.spare = s.spare, nil
		if s.chunks[chunk] == nil {
			s.chunks[chunk] = new([chunkSize]T)
		}
	}
	return i
}

// remove zeroes the record and keeps its index for the next one.
func (s *slab[I, T]) remove(i I) {
	var zero T
	*s.at(i) = zero
	if s.give(i) {
		chunk := i >> chunkBits
		s.chunks[chunk], s.spare = s.none, s.chunks[chunk]
	}
}

// all returns every record by index, including the zero records of unused indices.
func (s *slab[I, T]) all() iter.Seq2[I, *T] {
	return func(yield func(I, *T) bool) {
		for i := I(1); i <= s.used; i++ {
			if !yield(i, s.at(i)) {
				return
			}
		}
	}
}

// indices are the indices of the records in a slab, and the number of records in each of its chunks.
type indices[I ~uint32] struct {
	bits   uint8 // a chunk has two to the power of this many records
	used   I     // indices up to this one have been in use at least once
	free   []I
	counts []uint32 // of the records in each chunk
}

// take returns an unused index.
func (x *indices[I]) take() (i I) {
	if n := len(x.free); n > 0 {
		i = x.free[n-1]
		x.free = x.free[:n-1]
	} else {
		x.used++
		i = x.used
	}
	if int(i>>x.bits) == len(x.counts) {
		x.counts = append(x.counts, 0)
	}
	x.counts[i>>x.bits]++
	return i
}

// give returns an index for further use, and reports whether its chunk has no records any longer.
func (x *indices[I]) give(i I) (isEmpty bool) {
	x.free = append(x.free, i)
	x.counts[i>>x.bits]--
	return x.counts[i>>x.bits] == 0
}

func (x *indices[I]) len() int { return int(x.used) - len(x.free) }

// table interns values that many records share: kinds, namespaces, versions,
// lists of finalizers. Uses are counted, because dependents claim free text,
// which must not fill the memory after the claims are gone.
// ID zero stands for the zero value and is not counted.
type table[I ~uint32, K comparable] struct {
	ids   map[K]I
	rows  []row[K]
	free  []I
	clone func(K) K // copies a value to keep, so that it does not retain the text that it is a part of
}

type row[K comparable] struct {
	key  K
	uses uint32
}

func newTable[I ~uint32, K comparable](clone func(K) K) table[I, K] {
	return table[I, K]{ids: make(map[K]I), rows: make([]row[K], 1), clone: clone}
}

func (t *table[I, K]) value(id I) K { return t.rows[id].key }

// find returns the ID of a value that is in use.
func (t *table[I, K]) find(key K) (I, bool) {
	if key == t.rows[0].key {
		return 0, true
	}
	id, ok := t.ids[key]
	return id, ok
}

// acquire returns the ID of a value and adds a use.
func (t *table[I, K]) acquire(key K) I {
	id, ok := t.find(key)
	switch {
	case ok && id == 0:
		return 0
	case ok:
		t.rows[id].uses++
		return id
	}
	if n := len(t.free); n > 0 {
		id = t.free[n-1]
		t.free = t.free[:n-1]
	} else {
		id = I(len(t.rows))
		t.rows = append(t.rows, row[K]{})
	}
	key = t.clone(key)
	t.ids[key] = id
	t.rows[id] = row[K]{key: key, uses: 1}
	return id
}

// release removes a use; a value without uses is dropped.
func (t *table[I, K]) release(id I) {
	if id == 0 {
		return
	}
	r := &t.rows[id]
	r.uses--
	if r.uses > 0 {
		return
	}
	delete(t.ids, r.key)
	*r = row[K]{}
	t.free = append(t.free, id)
}

func cloneKind(k Kind) Kind {
	return Kind{Group: strings.Clone(k.Group), Kind: strings.Clone(k.Kind)}
}
