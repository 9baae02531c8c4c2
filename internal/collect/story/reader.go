package story

import (
	"slices"
	"time"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// Sees reports whether a reader may see objects of the kind and in the namespace of an object. A namespace with the
// same name and another UID is a different one. It is nil for a reader who sees everything; other readers get stories
// as if no other objects existed (visible.go).
type Sees func(object Ref) bool

// Reader reads a Book at a time.
type Reader struct {
	// Read calls a function with the Book, which nobody changes meanwhile. The function copies what it needs, and does
	// not call Sees, which may take long.
	Read func(func(b *Book))
	Sees Sees
	Now  time.Time
}

// List returns the stories, the latest first, of which the reader may see a root.
func (r Reader) List() []Summary {
	all, _, _ := r.Since(0)
	slices.SortStableFunc(all, func(x, y Summary) int { return y.Began.Compare(x.Began) })
	return all
}

// Since returns the stories that have changed after a number of changes, the stories that were forgotten or merged
// since, and the current number of changes. A story that has ended because nothing happened any more counts as
// changed at that time.
func (r Reader) Since(change uint64) (changed []Summary, removed []ownership.UID, at uint64) {
	var stories [][]head
	var removals []removal
	r.Read(func(b *Book) {
		stories, at = b.headsSince(change), b.changes
		if change > 0 {
			removals = b.removals.since(change)
		}
	})
	// Hidden stories are not read. A story that changes meanwhile is read again, after at.
	stories = slices.DeleteFunc(stories, func(heads []head) bool { return firstSeen(heads, r.Sees) < 0 })
	var views []view
	r.Read(func(b *Book) {
		for _, heads := range stories {
			if s := b.shelf.byID[heads[0].UID]; s != nil {
				views = append(views, b.view(s, r.Sees, r.Now))
			}
		}
	})
	for n := range views {
		if s, seen := views[n].summaryFor(r.Sees, r.Now); seen && views[n].hasChanged(change, r.Sees) {
			changed = append(changed, s)
		}
	}
	for _, one := range removals {
		if n := firstSeen(one.heads, r.Sees); n >= 0 {
			removed = append(removed, one.heads[n].UID)
		}
	}
	return changed, removed, at
}

// Story returns a story, its objects that have changed since a position, and the next position. It leaves out objects
// that the reader may not see. Position 0 is the beginning: all objects are returned. A reader who sees none of the
// roots gets nothing.
func (r Reader) Story(id ownership.UID, since Position) (s Summary, objects []Object, next Position, ok bool) {
	root, known := r.rootOf(id)
	if !known {
		return Summary{}, nil, 0, false
	}
	var v view
	var entries []entry
	var homes map[ownership.UID]Ref
	r.Read(func(b *Book) {
		found := b.shelf.byID[root]
		if found == nil {
			known = false
			return
		}
		v, entries, next = b.view(found, r.Sees, r.Now), found.changed(since), found.journal.end()
		if r.Sees != nil {
			homes = b.membership.containersOf(entries)
		}
	})
	if known {
		s, known = v.summaryFor(r.Sees, r.Now)
	}
	if !known {
		return Summary{}, nil, 0, false
	}
	objects = make([]Object, 0, len(entries))
	for n := range entries {
		e := &entries[n]
		if r.Sees != nil && !r.Sees(e.Ref) {
			continue
		}
		if home, known := homes[e.in]; r.Sees != nil && (!known || !r.Sees(home)) {
			e.in = ""
		}
		objects = append(objects, e.object(r.Sees))
	}
	return s, objects, next, true
}

// rootOf returns the first root of the story whose first visible root is an object; false if there is no such story.
func (r Reader) rootOf(id ownership.UID) (first ownership.UID, known bool) {
	var root Ref
	var further []head
	r.Read(func(b *Book) { root, further, known = b.headsOf(id) })
	switch {
	case !known:
		return "", false
	case r.Sees == nil || r.Sees(root):
		return root.UID, root.UID == id
	}
	n := firstSeen(further, r.Sees)
	return root.UID, n >= 0 && further[n].UID == id
}

// headsSince returns the heads of the stories that have changed after a number of changes.
func (b *Book) headsSince(change uint64) (stories [][]head) {
	for _, s := range b.shelf.order {
		if s.change > change {
			stories = append(stories, s.copyHeads())
		}
	}
	return stories
}

// headsOf returns the first root and the other heads of the story with an object among its heads. It makes no copies
// for a story with one head: the answer about a hidden story must not take longer than about an absent one.
func (b *Book) headsOf(id ownership.UID) (first Ref, further []head, known bool) {
	s := b.shelf.byID[id]
	if m := b.membership.members[id]; s == nil && m.entry != nil && slices.Contains(m.story.heads, m.entry) {
		s = m.story
	}
	if s == nil {
		return Ref{}, nil, false
	}
	if len(s.heads) > 1 {
		further = s.copyHeads()[1:]
	}
	return s.heads[0].Ref, further, true
}

// changed returns copies of the entries that have changed since a position, each once.
func (s *story) changed(since Position) []entry {
	if since == End {
		return nil
	}
	places, known := s.journal.since(since)
	found := make([]entry, 0, len(places))
	for _, at := range places {
		found = append(found, *s.entries[at])
	}
	if !known {
		for _, e := range s.entries {
			found = append(found, *e)
		}
	}
	return found
}

// containersOf returns the containers of entries, their namespaces or definitions, whose rights the caller has to check.
func (m *membership) containersOf(entries []entry) map[ownership.UID]Ref {
	homes := map[ownership.UID]Ref{}
	for n := range entries {
		if home := m.members[entries[n].in].entry; home != nil {
			homes[home.UID] = home.Ref
		}
	}
	return homes
}
