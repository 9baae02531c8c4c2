package ownership

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// The index and a Go map agree after all additions and removals.
func TestIndexIsAMap(t *testing.T) {
	const steps = 200_000
	random := rand.New(rand.NewPCG(1, 2))
	x, entries, want := newIndex(), newSlab[entryID, entry](), make(map[[16]byte]entryID)
	for step := range steps {
		key := [16]byte{byte(random.Uint32()), byte(random.Uint32N(16)), 15: 1}
		i := want[key]
		if got := x.find(&key, &entries); got != i {
			t.Fatalf("step %d: found %d, want %d", step, got, i)
		}
		grows := step/20_000%2 == 0 // it grows and shrinks in turns
		switch {
		case i == 0 && (grows || random.Uint32N(4) == 0):
			i = entries.add()
			entries.at(i).uid = key
			x.add(&key, i)
			want[key] = i
		case i != 0 && (!grows || random.Uint32N(4) == 0):
			x.remove(&key, i)
			entries.remove(i)
			delete(want, key)
		}
		if x.used != len(want) || 4*x.used > 3*len(x.places) {
			t.Fatalf("step %d: %d of %d places used, want %d", step, x.used, len(x.places), len(want))
		}
	}
	for _, key := range slices.Collect(maps.Keys(want)) {
		i := x.find(&key, &entries)
		if i != want[key] {
			t.Fatalf("found %d, want %d", i, want[key])
		}
		x.remove(&key, i)
	}
	if x.used != 0 || len(x.places) != fewestPlaces {
		t.Errorf("%d of %d places are used when nothing is left", x.used, len(x.places))
	}
}

// Every character in every place is a digit or a hyphen, or the text is not a UUID.
func TestOnlyHexadecimalDigitsMakeAUUID(t *testing.T) {
	const uid = "01234567-89ab-4def-8000-fedcba987654"
	for at := range uid {
		for c := range 256 {
			text := UID(uid[:at] + string([]byte{byte(c)}) + uid[at+1:])
			want := isHyphen(at) && c == '-' || !isHyphen(at) && strings.IndexByte(hexDigits, byte(c)) >= 0
			key, ok := parseUUID(text)
			if ok != want || ok && formatUUID(key) != text {
				t.Errorf("%q: %x, %t, want %t", text, key, ok, want)
			}
		}
	}
	for _, text := range []UID{"", UID(uid[1:]), UID(uid + "0")} {
		if _, ok := parseUUID(text); ok {
			t.Errorf("%q is a UUID", text)
		}
	}
}
