package undo

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/controller/pods"
)

// Closure returns the kept objects with the given UIDs, which one request named, and the objects that were deleted
// with them: their direct and indirect dependents; the contents of namespaces; the instances of
// CustomResourceDefinitions. It omits objects that were removed before the deletion began, and the contents of a
// namespace that was recreated under the same name. If several objects had the same name, it returns the last one.
func Closure(kept []Kept, roots ...types.UID) []Kept {
	wanted, reached := map[types.UID]bool{}, map[int]bool{}
	for _, root := range roots {
		wanted[root] = true
	}
	var queue []int
	var requests []Kept
	for n := range kept {
		if wanted[kept[n].UID()] {
			reached[n] = true
			requests = append(requests, kept[n])
			queue = append(queue, n)
		}
	}
	if len(queue) == 0 {
		return nil
	}
	isRoot := maps.Clone(reached)
	dependents, contents := removedSince(kept, Beginning(requests))
	for ; len(queue) > 0; queue = queue[1:] {
		k := &kept[queue[0]]
		for _, n := range slices.Concat(dependents[k.UID()], contents[k.Place()]) {
			if !reached[n] && (k.holds(&kept[n]) || isOwnedBy(&kept[n], k)) {
				reached[n] = true
				queue = append(queue, n)
			}
		}
	}
	return latest(kept, reached, isRoot)
}

// Merge returns each object once, the first removed first. An object that was deleted after it had lost owner references
// counts as deleted only; one that has lost references several times gets all.
func Merge(kept []Kept) []Kept {
	all := slices.SortedFunc(slices.Values(kept), func(a, b Kept) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), cmp.Compare(a.UID(), b.UID()))
	})
	at, merged := map[types.UID]int{}, []Kept{}
	for n := range all {
		k := all[n]
		first, seen := at[k.UID()]
		switch {
		case !seen:
			at[k.UID()] = len(merged)
			merged = append(merged, k)
		case !merged[first].Stays: // deleted
		case k.Stays:
			o := merged[first].Object.DeepCopy()
			o.SetOwnerReferences(append(o.GetOwnerReferences(), k.Object.GetOwnerReferences()...))
			merged[first].Object = o
		default:
			merged[first] = k
		}
	}
	return merged
}

// removedSince returns the objects that were removed since a moment, by the UIDs of their owners, and by their
// namespaces and definitions.
func removedSince(kept []Kept, began Moment) (dependents map[types.UID][]int, contents map[Place][]int) {
	dependents, contents = map[types.UID][]int{}, map[Place][]int{}
	for n := range kept {
		k := &kept[n]
		if !began.Before(k.Revision, k.Removed) {
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
	return dependents, contents
}

// holds reports whether content was removed no later than its namespace or definition: later content was in another
// one of that name. If the revision is unknown, all objects were kept because of one deletion.
func (k *Kept) holds(content *Kept) bool {
	return k.Revision == 0 || content.Revision <= k.Revision
}

func isOwnedBy(k, owner *Kept) bool {
	return slices.ContainsFunc(k.Object.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == owner.UID() })
}

// Moment is the beginning of a deletion: a revision, or a time in seconds; if it has both, either counts.
type Moment struct {
	revision int64
	time     time.Time
}

// Beginning returns the time at which the deletion of objects began: when an object was marked, or else when it was
// removed.
func Beginning(roots []Kept) Moment {
	first := Moment{revision: math.MaxInt64}
	for n := range roots {
		k := &roots[n]
		marked := k.Object.GetDeletionTimestamp()
		if marked == nil {
			first.revision = min(first.revision, k.Revision)
			continue
		}
		began := marked.Time
		if grace := k.Object.GetDeletionGracePeriodSeconds(); grace != nil {
			began = began.Add(-pods.Seconds(*grace))
		}
		if first.time.IsZero() || began.Before(first.time) {
			first.time = began
		}
	}
	return first
}

// Before reports whether the moment was not after the removal of an object. An object with an unknown removal was
// kept because of this very deletion.
func (m Moment) Before(revision int64, removed time.Time) bool {
	return !m.time.IsZero() && (removed.IsZero() || !removed.Before(m.time)) || revision == 0 || revision >= m.revision
}

// latest returns the reached objects: at each place the one that was removed last, but a root in any case.
func latest(kept []Kept, reached, isRoot map[int]bool) []Kept {
	at := map[Place]int{}
	for n := range kept {
		if !reached[n] {
			continue
		}
		place := kept[n].Place()
		other, taken := at[place]
		isLater := taken && kept[n].Revision >= kept[other].Revision
		if !taken || isRoot[n] && !isRoot[other] || isRoot[n] == isRoot[other] && isLater {
			at[place] = n
		}
	}
	var all []Kept
	for n := range kept {
		if reached[n] && at[kept[n].Place()] == n {
			k := kept[n]
			k.Requested = isRoot[n]
			all = append(all, k)
		}
	}
	return all
}

// Latest returns the UID of the object at a place that was removed last.
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
