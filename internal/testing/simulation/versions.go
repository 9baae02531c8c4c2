package simulation

import (
	"slices"
	"strings"

	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// version is the state of an object after a write. Versions are never changed.
type version struct {
	ownership.Object
	deleting bool
	gone     bool // the write removed the object
	revision int
	life     *life
}

// life is the history of one object, from its creation to its removal.
type life struct {
	uid      ownership.UID
	versions []*version
	marked   int // revision of the write that began its deletion

	// Earlier phases of the object. Owners change between a decision about a dependent and its
	// write, so the oracle has to distinguish phases that have ended from phases that never began.
	wasForeground, wasOrphaning bool
}

// now returns the current version of the object, or nil if it is gone.
func (l *life) now() *version {
	if l == nil || len(l.versions) == 0 || l.versions[len(l.versions)-1].gone {
		return nil
	}
	return l.versions[len(l.versions)-1]
}

// next returns a copy from which to make the next version.
func (v *version) next() *version {
	after := &version{Object: v.Object, deleting: v.deleting, life: v.life}
	after.Finalizers = slices.Clone(v.Finalizers)
	after.Owners = slices.Clone(v.Owners)
	return after
}

// at returns the object's version at a revision, or nil if it did not exist.
func (l *life) at(revision int) *version {
	for _, v := range slices.Backward(l.versions) {
		if v.revision <= revision {
			if v.gone {
				return nil
			}
			return v
		}
	}
	return nil
}

// restore restores a backup of an earlier revision: later writes are undone. Revisions continue
// from the current one, as with etcd's own tool. It returns false if the state cannot be derived
// from the log.
func (s *apiServer) restore(revision int) bool {
	for _, r := range s.resources {
		if r.epoch != s.restored || revision < 1 {
			return false // a kind was withdrawn meanwhile
		}
	}
	s.restored++
	for _, r := range s.resources {
		r.epoch++
		r.log = slices.DeleteFunc(slices.Clone(r.log), func(v *version) bool { return v.revision > revision })
	}
	clear(s.objects)
	lives := s.lives
	s.lives = nil
	for _, l := range lives {
		l.versions = slices.DeleteFunc(slices.Clone(l.versions), func(v *version) bool {
			return v.revision > revision
		})
		if len(l.versions) == 0 {
			delete(s.byUID, l.uid)
			continue
		}
		s.lives = append(s.lives, l)
		l.recall()
		if v := l.now(); v != nil {
			s.objects[client.RefOf(v.Object)] = l
		}
	}
	return true
}

// recall derives the other fields from the versions.
func (l *life) recall() {
	l.marked, l.wasForeground, l.wasOrphaning = 0, false, false
	for _, v := range l.versions {
		if v.deleting && l.marked == 0 {
			l.marked = v.revision
		}
		l.wasForeground = l.wasForeground || v.Phase == ownership.Foreground
		l.wasOrphaning = l.wasOrphaning || v.Phase == ownership.Orphaning
	}
}

// listAt returns the list of a resource after the first n of its watch events.
func (r *resource) listAt(n int) []ownership.Object {
	latest := make(map[*life]*version)
	for _, v := range r.log[:n] {
		latest[v.life] = v
	}
	var list []ownership.Object
	for _, v := range r.log[:n] {
		if latest[v.life] == v && !v.gone {
			list = append(list, v.Object)
		}
	}
	slices.SortFunc(list, func(a, b ownership.Object) int { return strings.Compare(a.Name, b.Name) })
	return list
}
