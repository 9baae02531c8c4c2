package ownership

import "hash/maphash"

// index finds entries by their UUIDs. It is a hash table with eight bytes per place and linear
// probing; the UUIDs themselves are in the entries. A lookup touches memory in two places, one in
// the table and one that the caller needs anyway, and the table of a million entries takes half
// the memory of a map. The hash is seeded: UUIDs in owner references are free text, and it must
// not be possible to make them collide on purpose.
type index struct {
	seed   maphash.Seed
	places []place // a power of two of them
	used   int
}

// place holds an entry and its hash; the entry of a free place is zero.
type place struct {
	hash  uint32
	entry entryID
}

// fewestPlaces is the initial size of the table.
const fewestPlaces = 16

func newIndex() index { return index{seed: maphash.MakeSeed(), places: make([]place, fewestPlaces)} }

func (x *index) hash(key *[16]byte) uint32 { return uint32(maphash.Bytes(x.seed, key[:]) >> 32) }

// find returns the entry with that UUID, zero if it does not exist.
func (x *index) find(key *[16]byte, entries *slab[entryID, entry]) entryID {
	hash, last := x.hash(key), uint32(len(x.places)-1)
	for at := hash & last; ; at = (at + 1) & last {
		p := x.places[at]
		if p.entry == 0 || p.hash == hash && entries.at(p.entry).uid == *key {
			return p.entry
		}
	}
}

// search returns the place of an entry with that hash, or the free place where the search for it
// ends.
func (x *index) search(hash uint32, i entryID) uint32 {
	last := uint32(len(x.places) - 1)
	at := hash & last
	for x.places[at].entry != 0 && x.places[at].entry != i {
		at = (at + 1) & last
	}
	return at
}

// add adds an entry whose UUID is not in the index yet.
func (x *index) add(key *[16]byte, i entryID) {
	if 3*len(x.places) <= 4*(x.used+1) {
		x.resize(2 * len(x.places))
	}
	x.put(place{x.hash(key), i})
	x.used++
}

func (x *index) put(p place) {
	x.places[x.search(p.hash, 0)] = p
}

func (x *index) resize(n int) {
	before := x.places
	x.places = make([]place, n)
	for _, p := range before {
		if p.entry != 0 {
			x.put(p)
		}
	}
}

// remove removes an entry that is in the index. Entries that collided with it move up, so that
// the next search for them does not stop at the place that has become free.
func (x *index) remove(key *[16]byte, i entryID) {
	last := uint32(len(x.places) - 1)
	free := x.search(x.hash(key), i)
	for at := (free + 1) & last; x.places[at].entry != 0; at = (at + 1) & last {
		home := x.places[at].hash & last
		if (at-home)&last >= (at-free)&last {
			x.places[free] = x.places[at]
			free = at
		}
	}
	x.places[free] = place{}
	x.used--
	if len(x.places) > fewestPlaces && 8*x.used < len(x.places) {
		x.resize(len(x.places) / 2)
	}
}
