package ownership

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

// Names keep their texts while others are added, shared, derived from them and released. After the last release, all
// chunks but the spare ones are freed.
func TestNamesKeepTextsAndFreeChunks(t *testing.T) {
	const steps = 50_000
	random := rand.New(rand.NewPCG(1, 2))
	n := newNames()
	type use struct {
		id   nameID
		text string
	}
	var used []use
	for step := range steps {
		growing := step/5_000%2 == 0
		switch {
		case len(used) == 0 || growing && random.IntN(4) == 0:
			text := strings.Repeat("x", random.IntN(300)) + strconv.Itoa(random.IntN(100))
			used = append(used, use{n.add(text), text})
		case growing || random.IntN(4) == 0:
			owner := &used[min(random.IntN(len(used)), random.IntN(100))] // some have very many dependents
			text := owner.text + strings.Repeat("-", random.IntN(3)) + strings.Repeat("y", random.IntN(40))
			used = append(used, use{n.derive(text, &owner.id), text})
		default:
			at := random.IntN(len(used))
			n.release(used[at].id)
			used[at] = used[len(used)-1]
			used = used[:len(used)-1]
		}
		if len(used) == 0 {
			continue
		}
		one, other := used[random.IntN(len(used))], used[random.IntN(len(used))]
		if got := n.text(one.id); got != one.text || !n.equal(one.id, one.text) || n.equal(one.id, one.text+"z") {
			t.Fatalf("step %d: name is %q, want %q", step, got, one.text)
		}
		if n.same(one.id, other.id) != (one.text == other.text) || n.equal(one.id, other.text) != (one.text == other.text) {
			t.Fatalf("step %d: %q and %q: same is %t", step, one.text, other.text, n.same(one.id, other.id))
		}
	}
	for _, u := range used {
		n.release(u.id)
	}
	for class := range n.records {
		if got := n.records[class].len(); got != 0 || len(n.long) != 0 {
			t.Errorf("class %d has %d names that nothing uses, and there are %d long ones", class, got, len(n.long))
		}
		for _, chunk := range n.records[class].chunks {
			if chunk != nil {
				t.Errorf("class %d: a chunk is kept without records", class)
			}
		}
	}
}

// A dependent's name takes the bytes of its ending, also where an owner has more dependents than a record has room for
// uses.
func TestNamesOfDependentsAreKeptInShort(t *testing.T) {
	n := newNames()
	owner := n.add("web-5d4f8b9c7d")
	first := owner
	const dependents = 1000
	var ids []nameID
	for i := range dependents {
		ids = append(ids, n.derive("web-5d4f8b9c7d-"+strconv.Itoa(10_000+i), &owner))
	}
	const size = headSize + baseSize + len("-10000")
	if got := n.records[size/cell].len(); got != dependents {
		t.Errorf("%d dependents have short records, want %d", got, dependents)
	}
	if owner == first {
		t.Errorf("the owner's name has %d uses and was not copied", n.uses(first))
	}
	same := n.derive("web-5d4f8b9c7d", &owner)
	if same != owner {
		t.Error("a dependent with its owner's name has another copy of it")
	}
	for i, id := range ids {
		if want := "web-5d4f8b9c7d-" + strconv.Itoa(10_000+i); n.text(id) != want {
			t.Fatalf("name %d is %q, want %q", i, n.text(id), want)
		}
	}
}

// A name in a chain of owners takes no longer to read than any other: its base has none.
func TestBasesAreNotDerived(t *testing.T) {
	n := newNames()
	text := "owner"
	id := n.add(text)
	for range 50 {
		text += "-x"
		owner := id
		id = n.derive(text, &owner)
		if base := n.baseOf(id); base != owner || n.baseOf(base) != 0 || n.text(id) != text {
			t.Fatalf("%q, which should be %q, has the base %q of %q", n.text(id), text, n.text(base), n.text(n.baseOf(base)))
		}
	}
}

// A class without an unused index leaves its names to the next one.
func TestFullClassOfNames(t *testing.T) {
	n := newNames()
	const text = "web"
	class := (headSize + len(text) + cell - 1) / cell
	n.records[class].used = 1<<indexBits - 1
	id := n.add(text)
	if int(id.class()) != class+1 || n.text(id) != text {
		t.Errorf("name %q has class %d, want %q in class %d", n.text(id), id.class(), text, class+1)
	}
}

func TestComparisonOfNamesAllocatesNothing(t *testing.T) {
	n := newNames()
	owner := n.add("web-5d4f8b9c7d")
	for _, text := range []string{"", "a", "web-5d4f8b9c7d-x2k9q", strings.Repeat("x", longestName), strings.Repeat("x", MaxName)} {
		a, b := n.derive(text, &owner), n.add(text)
		if allocated := testing.AllocsPerRun(100, func() {
			if !n.equal(a, text) || !n.same(a, b) || n.same(a, owner) {
				t.Errorf("%q is not equal to itself", text)
			}
		}); allocated != 0 {
			t.Errorf("%q: comparison makes %v allocations", text, allocated)
		}
	}
}
