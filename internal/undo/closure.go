package undo

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Closure returns the kept object of a UID and what went with it: what it owned, directly or not; what was
// in it, if it is a namespace; its instances, if it is a CustomResourceDefinition. Objects that were removed
// before its deletion began did not go with it. Of several that had the same name, the last is meant.
func Closure(kept []Kept, root types.UID) []Kept {
	at := slices.IndexFunc(kept, func(k Kept) bool { return k.UID() == root })
	if at < 0 {
		return nil
	}
	began := beginning(&kept[at])
	dependents, contents := map[types.UID][]int{}, map[Place][]int{}
	for n := range kept {
		k := &kept[n]
		if !began.before(k) {
			continue
		}
		for _, owner := range k.Object.GetOwnerReferences() {
			dependents[owner.UID] = append(dependents[owner.UID], n)
		}
		if namespace := k.Object.GetNamespace(); namespace != "" {
			in := Place{Kind: namespaceKind, Name: namespace}
			contents[in] = append(contents[in], n)
		}
		of := Place{Kind: definitionKind, Name: k.Resource.GroupResource().String()}
		contents[of] = append(contents[of], n)
	}
	reached := map[int]bool{at: true}
	for queue := []int{at}; len(queue) > 0; queue = queue[1:] {
		k := &kept[queue[0]]
		for _, n := range slices.Concat(dependents[k.UID()], contents[k.Place()]) {
			if !reached[n] {
				reached[n] = true
				queue = append(queue, n)
			}
		}
	}
	return latest(kept, reached, at)
}

// moment is when a deletion began: at a revision, or at a time, to the second.
type moment struct {
	revision int64
	time     time.Time
}

// beginning returns when the deletion of an object began: when it was marked, or else when it was removed.
func beginning(k *Kept) moment {
	marked := k.Object.GetDeletionTimestamp()
	if marked == nil {
		return moment{revision: k.Revision}
	}
	began := marked.Time
	if grace := k.Object.GetDeletionGracePeriodSeconds(); grace != nil {
		began = began.Add(-time.Duration(*grace) * time.Second)
	}
	return moment{time: began}
}

// before reports whether the moment was not after an object was removed. What does not say when it was
// removed was kept because of this very deletion.
func (m moment) before(k *Kept) bool {
	if !m.time.IsZero() {
		return k.Removed.IsZero() || !k.Removed.Before(m.time)
	}
	return k.Revision == 0 || k.Revision >= m.revision
}

// latest returns the objects, of each place the one that was removed last; root in any case.
func latest(kept []Kept, reached map[int]bool, root int) []Kept {
	at := map[Place]int{}
	for n := range kept {
		if !reached[n] {
			continue
		}
		place := kept[n].Place()
		other, taken := at[place]
		if !taken || other != root && (n == root || kept[n].Revision >= kept[other].Revision) {
			at[place] = n
		}
	}
	var all []Kept
	for n := range kept {
		if reached[n] && at[kept[n].Place()] == n {
			k := kept[n]
			k.Requested = n == root
			all = append(all, k)
		}
	}
	return all
}

// Latest returns the UID of the last removed object at a place.
func Latest(kept []Kept, place Place) (types.UID, bool) {
	last := -1
	for n := range kept {
		if kept[n].Place() == place && !kept[n].Stays && (last < 0 || kept[n].Revision >= kept[last].Revision) {
			last = n
		}
	}
	if last < 0 {
		return "", false
	}
	return kept[last].UID(), true
}
