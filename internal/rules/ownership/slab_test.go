package ownership

import (
	"math/rand/v2"
	"reflect"
	"testing"
)

// Records have no pointers, which Go's collector would have to follow, and no padding but for the flags of an entry.
func TestRecordsAreSmallAndWithoutPointers(t *testing.T) {
	for record, size := range map[reflect.Type]uintptr{
		reflect.TypeFor[entry]():     52,
		reflect.TypeFor[claim]():     28,
		reflect.TypeFor[reference](): 24,
	} {
		if record.Size() != size {
			t.Errorf("%v takes %d bytes, want %d", record, record.Size(), size)
		}
		for field := range record.Fields() {
			kind := field.Type.Kind()
			if kind == reflect.Array {
				kind = field.Type.Elem().Kind()
			}
			if kind != reflect.Uint8 && kind != reflect.Uint32 {
				t.Errorf("field %s of %v is a %v", field.Name, record, kind)
			}
		}
	}
}

// Records keep their contents while others are added and removed, and new and removed records are
// zero. After the last removal, all chunks but a spare one are freed.
func TestSlabKeepsRecordsAndFreesChunks(t *testing.T) {
	const steps, most = 200_000, 5 * chunkSize
	random := rand.New(rand.NewPCG(1, 2))
	s := newSlab[entryID, [2]uint64]()
	written := map[entryID]uint64{}
	var used []entryID
	for step := range uint64(steps) {
		growing := int(step/10_000)%2 == 0
		if n := len(used); n == 0 || growing && n < most && random.IntN(4) > 0 || !growing && random.IntN(4) == 0 {
			i := s.add()
			if _, twice := written[i]; twice || i == 0 || *s.at(i) != [2]uint64{} {
				t.Fatalf("step %d: a new record at %d has %v, in use: %t", step, i, *s.at(i), twice)
			}
			written[i], *s.at(i) = step+1, [2]uint64{step + 1, ^step}
			used = append(used, i)
			continue
		}
		at := random.IntN(len(used))
		i := used[at]
		if got := *s.at(i); got[0] != written[i] {
			t.Fatalf("step %d: the record at %d has %v, want %d", step, i, got, written[i])
		}
		s.remove(i)
		delete(written, i)
		used[at] = used[len(used)-1]
		used = used[:len(used)-1]
		if *s.at(i) != [2]uint64{} || *s.at(0) != [2]uint64{} || s.len() != len(used) {
			t.Fatalf("step %d: what was removed is %v, and %d are left, want %d", step, *s.at(i), s.len(), len(used))
		}
	}
	for _, i := range used {
		s.remove(i)
	}
	for n, chunk := range s.chunks {
		if chunk != s.none {
			t.Errorf("chunk %d is kept without records", n)
		}
	}
	if *s.none != [chunkSize][2]uint64{} {
		t.Error("somebody has written to what was let go")
	}
	i := s.add()
	spare := s.chunks[i>>chunkBits]
	s.remove(i)
	if again := s.add(); s.chunks[again>>chunkBits] != spare {
		t.Error("a record that comes and goes costs memory each time")
	}
}
