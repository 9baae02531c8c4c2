package apimodel

import (
	"maps"
	"slices"
	"strings"

	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/collect/feed"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// event is a watch event: an object after a write, or the last state of a removed object.
type event struct {
	object   ownership.Object
	gone     bool
	revision int
}

// Serve starts to serve a kind and its watch.
func (s *Server) Serve(kind ownership.Kind, scope ownership.Scope) {
	s.mu.Lock()
	s.scopes[kind] = scope
	s.mu.Unlock()
	s.tell(func(sink feed.Sink) { sink.SetScope(kind, scope) })
	s.Relist(kind)
}

// Withdraw stops serving a kind. Its objects are lost, without watch events.
func (s *Server) Withdraw(kind ownership.Kind) {
	s.mu.Lock()
	delete(s.scopes, kind)
	maps.DeleteFunc(s.objects, func(ref client.Ref, _ stored) bool { return ref.Kind == kind })
	s.mu.Unlock()
	s.Relist(kind)
	s.tell(func(sink feed.Sink) { sink.SetScope(kind, ownership.ScopeUnknown) })
}

// Connect makes sink the receiver of all watches: it gets the scopes and a list of each served kind
// that is not held, then watch events.
func (s *Server) Connect(sink feed.Sink) {
	s.delivery.Lock()
	s.sink = sink
	s.delivery.Unlock()
	for _, kind := range s.kinds() {
		s.tell(func(sink feed.Sink) { sink.SetScope(kind, s.scope(kind)) })
		if !s.isHeld(kind) {
			s.Relist(kind)
		}
	}
}

// Manual keeps watch events until Deliver or Step.
func (s *Server) Manual() { s.manual = true }

// Hold holds the watch events of kinds back until Unhold: their watches lag.
func (s *Server) Hold(kinds ...ownership.Kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, kind := range kinds {
		s.held[kind] = true
	}
}

// Unhold lets the watches of kinds catch up.
func (s *Server) Unhold(kinds ...ownership.Kind) {
	s.mu.Lock()
	for _, kind := range kinds {
		delete(s.held, kind)
	}
	s.mu.Unlock()
	s.deliver()
}

// Relist lists a kind again: undelivered events are lost.
func (s *Server) Relist(kind ownership.Kind) {
	s.tell(func(sink feed.Sink) {
		s.mu.Lock()
		delete(s.pending, kind)
		var list []ownership.Object
		for ref, object := range s.objects {
			if ref.Kind == kind {
				list = append(list, clone(object.Object))
			}
		}
		revision := s.revision
		s.mu.Unlock()
		slices.SortFunc(list, func(a, b ownership.Object) int { return strings.Compare(string(a.UID), string(b.UID)) })
		feed.Replace(sink, kind, list)
		s.reach(kind, revision)
	})
}

// A Backup is the state of a server at one time.
type Backup struct {
	objects  map[client.Ref]stored
	revision int
}

// Backup returns a backup of the current state.
func (s *Server) Backup() Backup {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Backup{objects: maps.Clone(s.objects), revision: s.revision}
}

// Restore restores a backup and raises the revision by bump. Undelivered events and unfinished
// lists are lost. The sink is notified of the new epoch; the test has to list the kinds again with
// Relist, in any order.
func (s *Server) Restore(b Backup, bump int) {
	s.mu.Lock()
	s.objects, s.revision = maps.Clone(b.objects), b.revision+bump
	clear(s.pending)
	clear(s.reached)
	for token := range s.lists {
		s.lists[token] = nil
	}
	s.mu.Unlock()
	s.tell(func(sink feed.Sink) { sink.NewEpoch() })
}

// Deliver delivers all events that are not held, in the order of their revisions.
func (s *Server) Deliver() {
	for s.Step() {
	}
}

// Step delivers the oldest event that is not held. It returns false if no event can be delivered.
func (s *Server) Step() bool {
	found := false
	s.tell(func(sink feed.Sink) {
		e, ok := s.nextEvent()
		if found = ok; !ok {
			return
		}
		if e.gone {
			sink.Forget(e.object.UID, e.object.ResourceVersion)
		} else {
			sink.Observe(e.object)
		}
		s.reach(e.object.Kind, e.revision)
	})
	return found
}

// Bookmark sends the current revision to the watches that are not held, as a server does about once
// a minute. It delivers pending events first.
func (s *Server) Bookmark() {
	s.Deliver()
	s.tell(func(feed.Sink) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for kind := range s.scopes {
			if !s.held[kind] {
				s.reached[kind] = s.revision
			}
		}
	})
}

// reach records the revision that a watch has reached.
func (s *Server) reach(kind ownership.Kind, revision int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reached[kind] = revision
}

// Pending returns the number of events that are not delivered, held or not.
func (s *Server) Pending() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, events := range s.pending {
		n += len(events)
	}
	return n
}

func (s *Server) deliver() {
	if !s.manual {
		s.Deliver()
	}
}

// tell calls the sink, if there is one; calls are serialized.
func (s *Server) tell(what func(sink feed.Sink)) {
	s.delivery.Lock()
	defer s.delivery.Unlock()
	if s.sink != nil {
		what(s.sink)
	}
}

func (s *Server) nextEvent() (oldest event, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for kind, events := range s.pending {
		if len(events) > 0 && !s.held[kind] && (!ok || events[0].revision < oldest.revision) {
			oldest, ok = events[0], true
		}
	}
	if ok {
		kind := oldest.object.Kind
		s.pending[kind] = s.pending[kind][1:]
	}
	return oldest, ok
}

func (s *Server) kinds() []ownership.Kind {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Keys(s.scopes), func(a, b ownership.Kind) int {
		return strings.Compare(a.String(), b.String())
	})
}

func (s *Server) scope(kind ownership.Kind) ownership.Scope {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.scopes[kind]
}

func (s *Server) isHeld(kind ownership.Kind) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[kind]
}
