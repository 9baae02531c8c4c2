package story

import (
	"hash/maphash"
	"maps"
	"slices"
	"time"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// member has the story that an object belongs to. The entry is nil if there were too many objects.
type member struct {
	story *story
	entry *entry
}

// member returns the story that an object belongs to, false if it belongs to none.
func (b *Book) member(uid ownership.UID) (member, bool) {
	if m, known := b.members[uid]; known {
		return m, true
	}
	if len(b.beyond) == 0 {
		return member{}, false
	}
	s, known := b.beyond[b.hash(uid)]
	return member{story: s}, known
}

// hash returns the hash of a UID. Collisions are practically impossible.
func (b *Book) hash(uid ownership.UID) uint64 { return maphash.String(b.seed, string(uid)) }

// add adds an object to a story. Beyond the limit only the object's story is kept; a root always has
// an entry.
func (b *Book) add(s *story, e *entry) member {
	m := member{story: s, entry: e}
	if (b.objects >= b.limits.objects || b.bytes >= b.limits.bytes) && len(s.entries) > 0 {
		m.entry = nil
		s.beyond++
		b.beyond[b.hash(e.UID)] = s
	} else {
		e.at = len(s.entries)
		s.entries = append(s.entries, e)
		b.objects++
		b.count(e)
	}
	if len(s.entries)+s.beyond == 2 {
		b.singles--
	}
	if m.entry != nil {
		b.members[e.UID] = m
		if key := homeKey(e); key != "" {
			b.homes[key] = e
		}
	}
	return m
}

// count updates the size of the texts of an entry of a story.
func (b *Book) count(e *entry) {
	n := 0
	ref := func(r *Ref) { n += len(r.Kind) + len(r.Namespace) + len(r.NamespaceUID) + len(r.Name) + len(r.UID) }
	ref(&e.Ref)
	for _, o := range e.owners {
		n += len(o.UID)
	}
	for _, refs := range [][]Ref{e.keptBy, e.lost} {
		for i := range refs {
			ref(&refs[i])
		}
	}
	for _, f := range e.finalizers {
		n += len(f)
	}
	b.bytes += n - e.bytes
	e.bytes = n
}

// homeKey returns the key of a namespace or a definition, "" for any other object.
func homeKey(e *entry) string {
	switch e.Kind {
	case "Namespace":
		return namespaceKey(e.Name)
	case "CustomResourceDefinition.apiextensions.k8s.io":
		return definitionKey(e.Name)
	}
	return ""
}

// forget drops stories until the limits hold.
func (b *Book) forget(now time.Time) {
	for i := 0; i < len(b.order); {
		tooManySingles := b.singles > b.limits.singles
		tooMany := len(b.order) > b.limits.stories || b.objects > b.limits.objects*9/10 || b.bytes > b.limits.bytes*9/10
		if !tooManySingles && !tooMany {
			return
		}
		s := b.order[i]
		isSingle := len(s.entries)+s.beyond == 1
		if s.isDone(now) && (isSingle || tooMany) {
			b.drop(i)
			continue
		}
		i++
	}
}

// drop removes a story.
func (b *Book) drop(i int) {
	s := b.order[i]
	b.order = slices.Delete(b.order, i, i+1)
	id := s.roots[0].UID
	delete(b.stories, id)
	if b.byKey[s.key] == s {
		delete(b.byKey, s.key)
	}
	if len(s.entries)+s.beyond == 1 {
		b.singles--
	}
	b.objects -= len(s.entries)
	for _, e := range s.entries {
		b.bytes -= e.bytes
		e.bytes = 0
		if b.members[e.UID].story == s {
			delete(b.members, e.UID)
		}
		if key := homeKey(e); key != "" && b.homes[key] == e {
			delete(b.homes, key)
		}
	}
	if s.beyond > 0 {
		maps.DeleteFunc(b.beyond, func(_ uint64, of *story) bool { return of == s })
	}
	b.changes++
	b.removed = append(b.removed, removal{s.copyHeads(), b.changes})
	if len(b.removed) > mostRemovals {
		b.removed = b.removed[1:]
	}
}
