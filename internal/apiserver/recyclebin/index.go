package recyclebin

import (
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/tools/undo"
)

// scope is a resource in a namespace: the right to get an object depends on it. A namespace that was recreated with the
// same name is another scope.
type scope struct {
	group, resource, namespace string
	namespaceUID               types.UID
}

func (s *scope) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: s.group, Resource: s.resource}
}

// indexed is a kept object in memory. Its size does not depend on the lengths of names.
type indexed struct {
	key      uint64 // in the database
	scope    *scope
	name     uint64 // hashes
	uid      uint64
	owners   []uint64
	revision int64
	removed  time.Time
	stays    bool // as in Item
}

// index has all kept objects, oldest first. It is safe for concurrent use.
type index struct {
	seed maphash.Seed

	mu     sync.RWMutex
	all    []indexed         // guarded by mu; returned slices do not change
	scopes map[scope]*scope  // guarded by mu
	counts map[*scope]uint64 // guarded by mu

	links links
}

func newIndex() *index {
	return &index{seed: maphash.MakeSeed(), scopes: map[scope]*scope{}, counts: map[*scope]uint64{}}
}

func (x *index) hash(text string) uint64 { return maphash.String(x.seed, text) }

// entry returns the indexed object of an item.
func (x *index) entry(key uint64, i *Item) indexed {
	owners := make([]uint64, 0, len(i.Owners))
	for _, owner := range i.Owners {
		owners = append(owners, x.hash(string(owner.UID)))
	}
	return indexed{
		key: key, scope: &scope{i.Group, i.Resource, i.Namespace, i.NamespaceUID}, name: x.hash(i.Name), uid: x.hash(string(i.UID)),
		owners: owners, revision: i.Revision, removed: i.Removed, stays: i.Stays,
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

// clear removes all objects.
func (x *index) clear() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.all, x.scopes, x.counts = nil, map[scope]*scope{}, map[*scope]uint64{}
	x.links.clear()
}

// entries returns all objects, oldest first.
func (x *index) entries() []indexed {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return slices.Clip(x.all)
}

func (o *indexed) isNamespace() bool { return o.scope.group == "" && o.scope.resource == "namespaces" }

func (o *indexed) isDefinition() bool {
	return o.scope.group == "apiextensions.k8s.io" && o.scope.resource == "customresourcedefinitions"
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

// latest returns the wanted objects. Of several deleted objects with the same resource, namespace and name, it returns
// a root, or else the one that was removed last.
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
		if !wanted[o.key] || o.stays {
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
		if wanted[o.key] && (o.stays || at[place{o.scope, o.name}] == o) {
			last = append(last, o)
		}
	}
	return last
}
