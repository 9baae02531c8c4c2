package recyclebin

import (
	"cmp"
	"slices"
	"sync"

	"github.com/coppice-dev/coppice/internal/tools/undo"
)

// link is an owner reference: the hash of the owner's UID, and the key of the dependent.
type link struct{ owner, key uint64 }

func (l link) compare(m link) int {
	return cmp.Or(cmp.Compare(l.owner, m.owner), cmp.Compare(l.key, m.key))
}

// links has the links of all but the newest objects, sorted, so that a request need not read all objects. Each link
// takes 16 bytes. A request updates links if there are many newer objects. It is safe for concurrent use.
type links struct {
	mu     sync.Mutex
	sorted []link // guarded by mu; returned slices do not change
	end    uint64 // guarded by mu; the links of objects with lower keys are in sorted
}

// mostNew is the number of new objects, besides one in 16 of all, whose links each request sorts itself.
const mostNew = 1000

func (l *links) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sorted, l.end = nil, 0
}

// of returns sorted links of all objects with lower keys than end. They may include links of dropped objects. all are
// the objects of the index, in the order of their keys.
func (l *links) of(all []indexed) (sorted []link, end uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first, _ := place(all, l.end)
	rest := all[first:]
	if len(rest) <= len(all)/16+mostNew {
		return l.sorted, l.end
	}
	added := linksOf(rest)
	merged := make([]link, 0, len(l.sorted)+len(added))
	for _, old := range l.sorted {
		if old.key < all[0].key {
			continue // dropped
		}
		for len(added) > 0 && added[0].compare(old) < 0 {
			merged, added = append(merged, added[0]), added[1:]
		}
		merged = append(merged, old)
	}
	l.sorted, l.end = append(merged, added...), all[len(all)-1].key+1
	return l.sorted, l.end
}

// linksOf returns the links of some objects, sorted.
func linksOf(objects []indexed) []link {
	var all []link
	for n := range objects {
		for _, owner := range objects[n].owners {
			all = append(all, link{owner, objects[n].key})
		}
	}
	slices.SortFunc(all, link.compare)
	return all
}

// place returns the index of the object with a key, or its insertion point, in objects sorted by key.
func place(all []indexed, key uint64) (int, bool) {
	return slices.BinarySearchFunc(all, key, func(o indexed, key uint64) int { return cmp.Compare(o.key, key) })
}

// deletedWith returns the keys of the roots and of all objects that were deleted with them: their direct and indirect
// dependents, the contents of namespaces, the instances of definitions, as undo.Closure does. Because it compares
// hashes, it may return a few objects more. head returns the metadata of a kept object.
func (x *index) deletedWith(all, roots []indexed, head func(key uint64) (*Item, error)) (map[uint64]bool, error) {
	began, err := beginningOf(roots, head)
	if err != nil {
		return nil, err
	}
	near := &neighbors{all: all, began: began}
	sorted, end := x.linked()
	newer, _ := place(all, end)
	near.links = [][]link{sorted, linksOf(all[newer:])}
	reached, queue := map[uint64]bool{}, slices.Clone(roots)
	for n := range roots {
		reached[roots[n].key] = true
	}
	for ; len(queue) > 0; queue = queue[1:] {
		next, err := near.of(&queue[0], head)
		if err != nil {
			return nil, err
		}
		for _, other := range next {
			if !reached[other.key] {
				reached[other.key] = true
				queue = append(queue, *other)
			}
		}
	}
	return reached, nil
}

// linked returns the links of the objects with lower keys than end. It locks the index, because the keys start again
// from the beginning when the index is cleared.
func (x *index) linked() (sorted []link, end uint64) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.links.of(x.all)
}

// neighbors finds the objects that may have been deleted with another one since a deletion began.
type neighbors struct {
	all    []indexed
	began  undo.Moment
	links  [][]link
	scopes map[*scope][]int // places of the objects of each scope; nil until the first use
}

// of returns the objects that were deleted with an object.
func (n *neighbors) of(o *indexed, head func(key uint64) (*Item, error)) ([]*indexed, error) {
	next := n.dependents(o.uid)
	if !o.isNamespace() && !o.isDefinition() {
		return next, nil
	}
	i, err := head(o.key)
	switch {
	case err != nil:
		return nil, err
	case i == nil:
		return next, nil
	case o.isNamespace():
		return slices.Concat(next, n.within(o.revision, func(s *scope) bool {
			return s.namespace == i.Name && (s.namespaceUID == "" || s.namespaceUID == i.UID)
		})), nil
	default:
		return slices.Concat(next, n.within(o.revision, func(s *scope) bool { return s.groupResource().String() == i.Name })), nil
	}
}

// dependents returns the objects with an owner reference to an owner.
func (n *neighbors) dependents(owner uint64) []*indexed {
	var found []*indexed
	for _, links := range n.links {
		first, _ := slices.BinarySearchFunc(links, link{owner, 0}, link.compare)
		for _, l := range links[first:] {
			if l.owner != owner {
				break
			}
			at, kept := place(n.all, l.key)
			if kept && slices.Contains(n.all[at].owners, owner) && n.began.Before(n.all[at].revision, n.all[at].removed) {
				found = append(found, &n.all[at])
			}
		}
	}
	return found
}

// within returns the objects of some scopes that were removed no later than a revision.
func (n *neighbors) within(revision int64, wanted func(s *scope) bool) []*indexed {
	if n.scopes == nil {
		n.scopes = map[*scope][]int{}
		for at := range n.all {
			n.scopes[n.all[at].scope] = append(n.scopes[n.all[at].scope], at)
		}
	}
	var found []*indexed
	for s, places := range n.scopes {
		if !wanted(s) {
			continue
		}
		for _, at := range places {
			if o := &n.all[at]; o.revision <= revision && n.began.Before(o.revision, o.removed) {
				found = append(found, o)
			}
		}
	}
	return found
}
