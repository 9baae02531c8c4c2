package story

import (
	"slices"
	"time"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// limits bound the size of a Book.
type limits struct {
	stories int // in all
	singles int // of one object, which are done
	objects int // in all stories
	bytes   int // of the texts in all objects: names, UIDs, finalizers, refusals
	further int // objects that are only counted
}

// bounds are the limits: 5 MB for the objects, 16 MB at most for their texts, and 1.2 MB for each 100 000 further objects.
// Of the latter, the Book keeps a hash and the story, as long as it keeps the story.
func bounds() limits {
	return limits{stories: 500, singles: 200, objects: 15_000, bytes: 16 << 20, further: 1_000_000}
}

const (
	// mostOwners bounds the kept owners of an object, and also its kept lost owners. All owners count when its story is
	// determined.
	mostOwners = 16
	// mostRemovals and mostRemovalBytes bound the removed stories about which readers may ask.
	mostRemovals     = 1000
	mostRemovalBytes = 1 << 20
)

// usage is how much of the limits the stories take.
type usage struct {
	objects int // that have an entry
	bytes   int // of their texts
	singles int // stories of one object
}

// isFull reports whether further objects are only counted.
func (u *usage) isFull(l *limits) bool { return u.objects >= l.objects || u.bytes >= l.bytes }

// isTight reports whether stories have to be forgotten to make room for objects.
func (u *usage) isTight(l *limits) bool {
	return u.objects > l.objects*9/10 || u.bytes > l.bytes*9/10
}

// count updates the size of the texts of an entry.
func (u *usage) count(e *entry) {
	size := e.Ref.bytes() + e.refusal.bytes()
	for _, o := range e.owners {
		size += len(o.UID)
	}
	for _, refs := range [][]Ref{e.keptBy, e.lost} {
		for i := range refs {
			size += refs[i].bytes()
		}
	}
	for _, f := range e.finalizers {
		size += len(f)
	}
	u.bytes += size - e.bytes
	e.bytes = size
}

// drop subtracts a story.
func (u *usage) drop(s *story) {
	u.objects -= len(s.entries)
	for _, e := range s.entries {
		u.bytes -= e.bytes
		e.bytes = 0
	}
	if s.size() == 1 {
		u.singles--
	}
}

func (r *Ref) bytes() int {
	return len(r.Kind) + len(r.Namespace) + len(r.NamespaceUID) + len(r.Name) + len(r.UID)
}

// shelf has the stories, and finds them.
type shelf struct {
	byID  map[ownership.UID]*story
	byKey map[string]*story // of requests
	order []*story          // the oldest first
}

func newShelf() shelf { return shelf{byID: map[ownership.UID]*story{}, byKey: map[string]*story{}} }

// add adds a story, whose ID is the UID of its root.
func (f *shelf) add(id ownership.UID, s *story) {
	f.byID[id] = s
	f.order = append(f.order, s)
	if s.key != "" {
		f.byKey[s.key] = s
	}
}

// ofRequest returns the story of the same request; nil if there is none. The client may choose the key: requests of
// other users with the same key do not join the story.
func (f *shelf) ofRequest(r *Request) *story {
	if r == nil {
		return nil
	}
	if s := f.byKey[r.Key]; s != nil && s.by.User == r.By.User {
		return s
	}
	return nil
}

// remove removes the story at a place of the order.
func (f *shelf) remove(at int) *story {
	s := f.order[at]
	f.order = slices.Delete(f.order, at, at+1)
	delete(f.byID, s.roots[0].UID)
	if f.byKey[s.key] == s {
		delete(f.byKey, s.key)
	}
	return s
}

// removals are the last stories that were forgotten or merged, for the readers who have read them.
type removals struct {
	all   []removal
	bytes int // of the texts
}

type removal struct {
	heads  []head
	change uint64 // of the Book
}

func (r *removals) add(one removal) {
	r.all = append(r.all, one)
	r.bytes += one.bytes()
	for len(r.all) > mostRemovals || r.bytes > mostRemovalBytes {
		r.bytes -= r.all[0].bytes()
		r.all = r.all[1:]
	}
}

// since returns the removals after a number of changes.
func (r *removals) since(change uint64) (found []removal) {
	for _, one := range r.all {
		if one.change > change {
			found = append(found, one)
		}
	}
	return found
}

func (r *removal) bytes() (size int) {
	for i := range r.heads {
		size += r.heads[i].bytes()
	}
	return size
}

// forget drops stories that are done until the limits hold: the oldest first. Stories of one object go for each limit,
// others only to make room. If too many stories are not done, it pauses: a burst of deletions takes linear time.
func (b *Book) forget(now time.Time) {
	if b.pause > 0 {
		b.pause--
		return
	}
	for at := 0; at < len(b.shelf.order); {
		isTight := len(b.shelf.order) > b.limits.stories || b.usage.isTight(&b.limits)
		if !isTight && b.usage.singles <= b.limits.singles {
			return
		}
		if s := b.shelf.order[at]; s.isDone(now) && (isTight || s.size() == 1) {
			b.drop(at)
		} else {
			at++
		}
	}
	b.pause = len(b.shelf.order) / 16
}

// drop removes the story at a place of the order.
func (b *Book) drop(at int) {
	s := b.shelf.remove(at)
	b.usage.drop(s)
	b.membership.drop(s)
	b.changes++
	b.removals.add(removal{s.copyHeads(), b.changes})
}
