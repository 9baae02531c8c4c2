package ownership

const (
	// minFilter and maxFilter bound the bytes of a filter. Of other objects, ten thousand owners take one in two for
	// theirs, five hundred one in ten thousand.
	minFilter, maxFilter = 64, 2048
	// bitsPerOwner is the size of a filter between these bounds.
	bitsPerOwner = 32
)

// filter is a Bloom filter. Its hashes are seeded: UIDs in owner references are free text, and it must not be
// possible to fill a filter on purpose.
type filter struct {
	bits   []byte // a power of two of them
	hashes int
}

func newFilter(n int) filter {
	size := minFilter
	for size < maxFilter && size*8 < n*bitsPerOwner {
		size *= 2
	}
	return filter{make([]byte, size), min(max(1, size*8*7/10/max(n, 1)), 8)}
}

func (f filter) place(hash uint64, n int) (at int, bit byte) {
	at = int((uint32(hash) + uint32(n)*(uint32(hash>>32)|1)) & uint32(len(f.bits)*8-1))
	return at / 8, 1 << (at % 8)
}

func (f filter) add(hash uint64) {
	for n := range f.hashes {
		at, bit := f.place(hash, n)
		f.bits[at] |= bit
	}
}

func (f filter) mayHave(hash uint64) bool {
	for n := range f.hashes {
		if at, bit := f.place(hash, n); f.bits[at]&bit == 0 {
			return false
		}
	}
	return true
}
