package recyclebin

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// kept is an index with its items.
type kept struct {
	*index

	items map[uint64]*Item
	next  uint64
}

func newKept() *kept { return &kept{index: newIndex(), items: map[uint64]*Item{}, next: 1} }

func (k *kept) add(dropped int, items ...*Item) {
	var added []indexed
	for _, i := range items {
		i.Revision, i.Removed = int64(k.next), time.Unix(1000, 0)
		added = append(added, k.entry(k.next, i))
		k.items[k.next] = i
		k.next++
	}
	k.change(added, dropped)
}

func (k *kept) head(key uint64) (*Item, error) { return k.items[key], nil }

func (k *kept) deletedWith(t *testing.T, uid types.UID) []uint64 {
	t.Helper()
	all := k.entries()
	found, err := k.index.deletedWith(all, k.rootsOf(all, uid), k.head)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(found))
}

func (k *kept) rootsOf(all []indexed, uid types.UID) (roots []indexed) {
	for _, o := range all {
		if k.items[o.key].UID == uid {
			roots = append(roots, o)
		}
	}
	return roots
}

// model does the same as along, but reads all items until it finds no other object.
func (k *kept) model(uid types.UID) []uint64 {
	all := k.entries()
	reached := map[uint64]bool{}
	for _, o := range k.rootsOf(all, uid) {
		reached[o.key] = true
	}
	began, _ := beginningOf(k.rootsOf(all, uid), k.head)
	for isDone := false; !isDone; {
		isDone = true
		for _, o := range all {
			i := k.items[o.key]
			for _, r := range all {
				with := k.items[r.key]
				isOwned := slices.ContainsFunc(i.Owners, func(o metav1.OwnerReference) bool { return o.UID == with.UID })
				isWithin := with.Resource == "namespaces" && i.Namespace == with.Name && (i.NamespaceUID == "" || i.NamespaceUID == with.UID) && i.Revision <= with.Revision
				isInstance := with.Resource == "customresourcedefinitions" && i.Resource+"."+i.Group == with.Name && i.Revision <= with.Revision
				if reached[r.key] && !reached[o.key] && (isOwned || isWithin || isInstance) && began.Before(i.Revision, i.Removed) {
					reached[o.key], isDone = true, false
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(reached))
}

// along finds all objects that were deleted with an object, after any additions and drops.
func TestAlongIsTheClosure(t *testing.T) {
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 1))
		k := newKept()
		for range 12 {
			var items []*Item
			for range random.IntN(30) {
				items = append(items, randomItem(random))
			}
			k.add(random.IntN(len(k.entries())+1)/3, items...)
			for n := range 40 {
				uid := types.UID(fmt.Sprint("u", n))
				if got, want := k.deletedWith(t, uid), k.model(uid); !slices.Equal(got, want) {
					t.Fatalf("seed %d: with %s went %v, want %v", seed, uid, got, want)
				}
			}
			if random.IntN(3) == 0 {
				k.force()
			}
		}
	}
}

// force sorts the links of half of the objects, although they are few.
func (k *kept) force() {
	k.links.mu.Lock()
	defer k.links.mu.Unlock()
	if all := k.entries(); len(all) > 0 {
		k.links.sorted, k.links.end = linksOf(all[:len(all)/2]), all[len(all)/2].key
	}
}

func randomItem(random *rand.Rand) *Item {
	i := &Item{Resource: "configmaps", Name: fmt.Sprint(random.IntN(9)), UID: types.UID(fmt.Sprint("u", random.IntN(40)))}
	switch random.IntN(8) {
	case 0:
		i.Resource, i.Name = "namespaces", fmt.Sprint("ns", random.IntN(3))
		return i
	case 1:
		i.Group, i.Resource, i.Name = "apiextensions.k8s.io", "customresourcedefinitions", "things.example.com"
		return i
	case 2:
		i.Group, i.Resource = "example.com", "things"
	}
	i.Namespace = fmt.Sprint("ns", random.IntN(3))
	i.NamespaceUID = types.UID([]string{"", fmt.Sprint("u", random.IntN(40))}[random.IntN(2)])
	for range random.IntN(3) {
		i.Owners = append(i.Owners, metav1.OwnerReference{UID: types.UID(fmt.Sprint("u", random.IntN(40)))})
	}
	return i
}

// A request allocates only for the objects that it returns: the number of allocations depends neither on the number of
// kept objects nor on writes in between.
func TestAlongReadsWhatItNeeds(t *testing.T) {
	k := newKept()
	var items []*Item
	for n := range 40_000 {
		items = append(items, &Item{
			Resource: "configmaps", Namespace: "shop", Name: fmt.Sprint(n), UID: types.UID(fmt.Sprint("u", n)),
			Owners: []metav1.OwnerReference{{UID: types.UID(fmt.Sprint("u", n/100))}},
		})
	}
	k.add(0, items...)
	all := k.entries()
	roots := k.rootsOf(all, "u39999")
	if found := k.deletedWith(t, "u39999"); len(found) != 1 {
		t.Fatalf("%d objects went with one that owns none", len(found))
	}
	if allocations := testing.AllocsPerRun(10, func() { _, _ = k.index.deletedWith(all, roots, k.head) }); allocations > 100 {
		t.Errorf("a request for one object takes %v allocations", allocations)
	}
	before := &k.links.sorted[0]
	k.add(100, &Item{Resource: "configmaps", Namespace: "shop", Name: "late", UID: "late", Owners: []metav1.OwnerReference{{UID: "u39999"}}})
	if found := k.deletedWith(t, "u39999"); len(found) != 2 || &k.links.sorted[0] != before {
		t.Errorf("after a write, %d objects went with it, want 2; the links were made again: %t", len(found), &k.links.sorted[0] != before)
	}
}

// After the bin was cleared, the same keys have the links of the new objects.
func TestLinksBeginAnew(t *testing.T) {
	k := newKept()
	fill := func(name string) {
		var items []*Item
		for n := range 3000 {
			items = append(items, &Item{Resource: "configmaps", Name: fmt.Sprint(n), UID: types.UID(fmt.Sprint(name, n)), Owners: []metav1.OwnerReference{{UID: types.UID(name + "0")}}})
		}
		k.next = 1
		k.add(0, items...)
		if found := k.deletedWith(t, types.UID(name+"0")); len(found) != 3000 {
			t.Errorf("with the first of %s went %d, want 3000", name, len(found))
		}
	}
	fill("old")
	k.clear()
	fill("new")
}
