package recyclebin

import (
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/undo"
)

// scope is a resource in a namespace: the right to get an object depends on it. A namespace that was created again
// under the same name is another scope.
type scope struct {
	group, resource, namespace string
	namespaceUID               types.UID
}

func (s *scope) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: s.group, Resource: s.resource}
}

// indexed is a kept object in memory. Its size does not depend on its name, nor on the names of its owners.
type indexed struct {
	key      uint64 // in the database
	scope    *scope
	name     uint64 // hashes
	uid      uint64
	owners   []uint64
	revision int64
	removed  time.Time
}

// index has all kept objects, the oldest first. It is safe for concurrent use.
type index struct {
	seed maphash.Seed

	mu     sync.RWMutex
	all    []indexed         // guarded by mu; a slice that was returned does not change
	scopes map[scope]*scope  // guarded by mu
	counts map[*scope]uint64 // guarded by mu
}

func newIndex() *index {
	return &index{seed: maphash.MakeSeed(), scopes: map[scope]*scope{}, counts: map[*scope]uint64{}}
}

func (x *index) hash(text string) uint64 { return maphash.String(x.seed, text) }

// entry returns what the index has of an item.
func (x *index) entry(key uint64, i *Item) indexed {
	owners := make([]uint64, 0, len(i.Owners))
	for _, owner := range i.Owners {
		owners = append(owners, x.hash(string(owner.UID)))
	}
	return indexed{
		key: key, scope: &scope{i.Group, i.Resource, i.Namespace, i.NamespaceUID}, name: x.hash(i.Name), uid: x.hash(string(i.UID)),
		owners: owners, revision: i.Revision, removed: i.Removed,
	}
}

// change adds objects, and then drops the oldest.
func (x *index) change(added []indexed, dropped int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for n := range added {
		known, is := x.scopes[*added[n].scope]
		if !is {
			known = added[n].scope
			x.scopes[*known] = known
		}
		added[n].scope = known
		x.counts[known]++
	}
	x.all = append(x.all, added...)
	for n := range x.all[:dropped] {
		of := x.all[n].scope
		if x.counts[of]--; x.counts[of] == 0 {
			delete(x.counts, of)
			delete(x.scopes, *of)
		}
	}
	x.all = x.all[dropped:]
	if cap(x.all) > 2*len(x.all)+1000 {
		x.all = slices.Clone(x.all)
	}
}

// clear forgets everything.
func (x *index) clear() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.all, x.scopes, x.counts = nil, map[scope]*scope{}, map[*scope]uint64{}
}

// entries returns all objects, the oldest first.
func (x *index) entries() []indexed {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return slices.Clip(x.all)
}

func (o *indexed) isNamespace() bool { return o.scope.group == "" && o.scope.resource == "namespaces" }

func (o *indexed) isDefinition() bool {
	return o.scope.group == "apiextensions.k8s.io" && o.scope.resource == "customresourcedefinitions"
}

// along returns the keys of some objects and of all objects that went with them: their direct and indirect
// dependents, the contents of namespaces, the instances of definitions, as undo.Closure does. Because it compares
// hashes, it may return a few objects more. head returns the metadata of a kept object.
func along(all []indexed, roots []indexed, head func(key uint64) (*Item, error)) (map[uint64]bool, error) {
	began, err := beginningOf(roots, head)
	if err != nil {
		return nil, err
	}
	near := neighborsOf(all, began)
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

// neighbors are the objects that may go with another: by the hash of an owner's UID, by the name of their namespace, and
// by their resource.
type neighbors struct {
	dependents map[uint64][]*indexed
	contents   map[string][]*indexed
	instances  map[string][]*indexed
}

func neighborsOf(all []indexed, began undo.Moment) neighbors {
	near := neighbors{map[uint64][]*indexed{}, map[string][]*indexed{}, map[string][]*indexed{}}
	for n := range all {
		o := &all[n]
		if !began.Before(o.revision, o.removed) {
			continue
		}
		for _, owner := range o.owners {
			near.dependents[owner] = append(near.dependents[owner], o)
		}
		if o.scope.namespace != "" {
			near.contents[o.scope.namespace] = append(near.contents[o.scope.namespace], o)
		}
		resource := o.scope.groupResource().String()
		near.instances[resource] = append(near.instances[resource], o)
	}
	return near
}

// of returns what went with an object.
func (n neighbors) of(o *indexed, head func(key uint64) (*Item, error)) ([]*indexed, error) {
	next := n.dependents[o.uid]
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
		return slices.Concat(next, i.contents(n.contents[i.Name])), nil
	default:
		return slices.Concat(next, upTo(n.instances[i.Name], o.revision)), nil
	}
}

// contents returns the objects that were in a namespace, out of those in namespaces of its name.
func (i *Item) contents(objects []*indexed) []*indexed {
	return slices.DeleteFunc(upTo(objects, i.Revision), func(o *indexed) bool {
		return o.scope.namespaceUID != "" && o.scope.namespaceUID != i.UID
	})
}

// upTo returns the objects that were removed no later than a revision.
func upTo(objects []*indexed, revision int64) []*indexed {
	return slices.DeleteFunc(slices.Clone(objects), func(o *indexed) bool { return o.revision > revision })
}

// beginningOf returns when the deletion of objects began.
func beginningOf(roots []indexed, head func(key uint64) (*Item, error)) (undo.Moment, error) {
	kept := make([]undo.Kept, 0, len(roots))
	for n := range roots {
		i, err := head(roots[n].key)
		if err != nil {
			return undo.Moment{}, err
		}
		if i != nil {
			kept = append(kept, i.Kept())
		}
	}
	return undo.Beginning(kept), nil
}

// latest returns the wanted objects, of several that had the same place the one that was removed last; a root in any
// case.
func latest(all, roots []indexed, wanted map[uint64]bool) []*indexed {
	type place struct {
		scope *scope
		name  uint64
	}
	isRoot := map[uint64]bool{}
	for n := range roots {
		isRoot[roots[n].key] = true
	}
	at := map[place]*indexed{}
	for n := range all {
		o := &all[n]
		if !wanted[o.key] {
			continue
		}
		other := at[place{o.scope, o.name}]
		if other == nil || isRoot[o.key] || !isRoot[other.key] { // all is in the order of removal
			at[place{o.scope, o.name}] = o
		}
	}
	var last []*indexed
	for n := range all {
		o := &all[n]
		if wanted[o.key] && at[place{o.scope, o.name}] == o {
			last = append(last, o)
		}
	}
	return last
}
