package collector

import (
	"maps"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// Lists come in parts, and what concerns all objects is done in slices: events and workers have their turn in between.

// StartList implements feed.Sink.
func (s *state) StartList(kind ownership.Kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.graph.StartList(kind)
}

// Listed implements feed.Sink. The stories get the objects that are being deleted, in place of watch events.
func (s *state) Listed(_ ownership.Kind, objects []ownership.Object) {
	s.change(func(g *ownership.Graph) (uids []ownership.UID) {
		now := s.clock.Now()
		for i := range objects {
			s.homes.observe(&objects[i])
			if s.stories != nil {
				s.stories.Seen(&objects[i], s.homes.at(objects[i].Namespace, objects[i].ResourceVersion), now)
			}
		}
		if !s.inTerm {
			g.Load(objects)
			return nil
		}
		return g.Listed(objects)
	})
}

// EndList implements feed.Sink.
func (s *state) EndList(kind ownership.Kind) {
	for at := (ownership.Cursor{}); !at.AtEnd(); {
		s.change(func(g *ownership.Graph) (uids []ownership.UID) {
			uids, at = g.DropMissing(kind, at)
			return uids
		})
	}
	s.change(func(g *ownership.Graph) []ownership.UID {
		uids := g.EndList(kind)
		isThere := func(uid ownership.UID) bool {
			_, _, isObserved := g.Place(uid)
			return isObserved
		}
		s.sweepLocked(isThere)
		if isNamespace(kind) {
			s.homes.sweep(isThere)
		}
		if s.stories != nil {
			s.stories.Listed(kind, isThere, s.clock.Now())
		}
		return uids
	})
	s.retryRefused(kind)
}

// sweepLocked forgets objects that a list has removed from the graph.
func (s *state) sweepLocked(isThere func(ownership.UID) bool) {
	maps.DeleteFunc(s.written, func(uid ownership.UID, _ string) bool { return !isThere(uid) })
	maps.DeleteFunc(s.reported, func(uid ownership.UID, _ string) bool { return !isThere(uid) })
	maps.DeleteFunc(s.protected, func(uid ownership.UID, _ protection.Held) bool { return !isThere(uid) })
	s.refused.Sweep(isThere)
}
