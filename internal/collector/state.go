package collector

import (
	"slices"
	"strings"
	"sync"

	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/ownership"
	"github.com/coppice-dev/coppice/internal/verdict"
)

// state is the collector's knowledge: the ownership graph, and a little beside
// it that is forgotten when the graph moves on. It takes in the feed's
// observations, and passes on to the queue which objects they concern. Nothing
// slow happens under its lock.
type state struct {
	queue Queue
	clock clock.PassiveClock // its time goes into the evidence

	mu    sync.Mutex
	graph *ownership.Graph // guarded by mu, and so is all below
	epoch int              // counts them

	// written holds the resourceVersion at which an object was written by us
	// with success, until something newer is known of the object. To decide
	// about that version again would be to send the same request again.
	// A server that went back in time (R4) makes it worthless.
	written map[ownership.UID]string
	// presumed holds the claims on an owner that was read live but is not
	// observed. They are read again until it is, or is gone.
	presumed map[ownership.UID]map[ownership.Claim]bool
	// reported holds what was last reported of an object.
	reported map[ownership.UID]string
}

// newState returns a state that knows nothing. It needs a queue.
func newState(clock clock.PassiveClock) *state {
	return &state{
		clock:    clock,
		graph:    ownership.New(),
		written:  make(map[ownership.UID]string),
		presumed: make(map[ownership.UID]map[ownership.Claim]bool),
		reported: make(map[ownership.UID]string),
	}
}

// change applies an observation to the graph and enqueues whom it concerns.
func (s *state) change(apply func(g *ownership.Graph) []ownership.UID) {
	s.mu.Lock()
	uids := apply(s.graph)
	s.mu.Unlock()
	s.queue.Add(uids...)
}

// Observe implements feed.Sink.
func (s *state) Observe(o ownership.Object) {
	s.change(func(g *ownership.Graph) []ownership.UID { return g.Observe(o) })
}

// Forget implements feed.Sink.
func (s *state) Forget(uid ownership.UID, resourceVersion string) {
	s.change(func(g *ownership.Graph) []ownership.UID {
		s.forgetLocked(uid)
		g.SetTime(s.clock.Now().UnixNano())
		return g.Forget(uid, resourceVersion)
	})
}

// Replace implements feed.Sink.
func (s *state) Replace(kind ownership.Kind, objects []ownership.Object) {
	s.change(func(g *ownership.Graph) []ownership.UID {
		uids := g.Replace(kind, objects)
		s.sweepLocked()
		return uids
	})
}

// SetScope implements feed.Sink.
func (s *state) SetScope(kind ownership.Kind, scope ownership.Scope) {
	s.change(func(g *ownership.Graph) []ownership.UID { return g.SetScope(kind, scope) })
}

// NewEpoch implements feed.Sink.
func (s *state) NewEpoch() {
	s.change(func(g *ownership.Graph) []ownership.UID {
		s.epoch++
		clear(s.written)
		return g.NewEpoch()
	})
}

// refresh takes in an object as the answer shows it to a request of ours that was
// begun in an epoch. In another one it may be of a world that is not there any more.
func (s *state) refresh(epoch int, o ownership.Object) {
	s.change(func(g *ownership.Graph) []ownership.UID {
		if s.epoch != epoch {
			return nil
		}
		return g.Refresh(o)
	})
}

// confirm takes in an object as a list showed it that was begun in an epoch. It
// returns whether the graph knows what became of that object.
func (s *state) confirm(epoch int, o ownership.Object) (known bool) {
	s.change(func(g *ownership.Graph) (uids []ownership.UID) {
		if s.epoch == epoch {
			uids, known = g.Confirm(o)
		}
		return uids
	})
	return known
}

// isStale tells whether an object was not observed in this epoch (R4).
func (s *state) isStale(uid ownership.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.graph.Stale(uid)
}

// count tells how many objects of a kind are known.
func (s *state) count(kind ownership.Kind) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.graph.Count(kind)
}

// vanish takes in that a live read found no object, or another, where this one was.
func (s *state) vanish(uid ownership.UID) {
	s.change(func(g *ownership.Graph) []ownership.UID {
		s.forgetLocked(uid)
		return g.Vanish(uid)
	})
}

// currentEpoch is the epoch that a live read begins in.
func (s *state) currentEpoch() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.epoch
}

// resolve takes in the answer to a live read of a claim that was begun in an
// epoch. It returns whether the claim needs to be read again: it was found
// present, somebody still makes it, and no observation of the owner would tell
// when it goes.
func (s *state) resolve(epoch int, claim ownership.Claim, presence ownership.Presence, phase ownership.Phase) (again bool) {
	s.change(func(g *ownership.Graph) []ownership.UID {
		if s.epoch != epoch {
			presence = ownership.Unknown // the answer may be of another world; who claims comes back
		}
		g.SetTime(s.clock.Now().UnixNano())
		uids := g.Resolve(claim, presence, phase)
		_, observed := g.Object(claim.UID)
		again = presence == ownership.Present && !observed && len(uids) > 0
		if again {
			s.presumeLocked(claim)
		} else {
			s.settleLocked(claim)
		}
		return uids
	})
	return again
}

func (s *state) presumeLocked(claim ownership.Claim) {
	if s.presumed[claim.UID] == nil {
		s.presumed[claim.UID] = make(map[ownership.Claim]bool)
	}
	s.presumed[claim.UID][claim] = true
}

func (s *state) settleLocked(claim ownership.Claim) {
	delete(s.presumed[claim.UID], claim)
	if len(s.presumed[claim.UID]) == 0 {
		delete(s.presumed, claim.UID)
	}
}

// presumptions returns the claims on an owner that was read live but is not
// observed. One that is not Present any more is none: nobody makes it, or its
// kind is not served now, or another epoch has begun; who makes it will ask.
func (s *state) presumptions(owner ownership.UID) []ownership.Claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	var claims []ownership.Claim
	for claim := range s.presumed[owner] {
		if s.graph.Presence(claim) == ownership.Present {
			claims = append(claims, claim)
		} else {
			s.settleLocked(claim)
		}
	}
	slices.SortFunc(claims, func(a, b ownership.Claim) int { return strings.Compare(a.String(), b.String()) })
	return claims
}

// object returns what is known of an object.
func (s *state) object(uid ownership.UID) (ownership.Object, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.graph.Object(uid)
}

// namespace is where an object is known to be; "" when it is cluster-scoped or not known.
func (s *state) namespace(uid ownership.UID) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.graph.Namespace(uid)
}

// presence tells what is known of a claim.
func (s *state) presence(claim ownership.Claim) ownership.Presence {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.graph.Presence(claim)
}

// gather returns the facts about an object. It has none when the object is not
// known, or was written at the version that is known.
func (s *state) gather(uid ownership.UID) (verdict.Facts, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	facts, known := verdict.Gather(s.graph, uid)
	if !known {
		s.forgetLocked(uid)
		return verdict.Facts{}, false
	}
	delete(s.presumed, uid) // it is observed now
	if version, ok := s.written[uid]; ok {
		if version == facts.Object.ResourceVersion {
			return verdict.Facts{}, false
		}
		delete(s.written, uid)
	}
	return facts, true
}

// wrote takes in that a write conditioned on this observation has succeeded, which was
// begun in an epoch. Of another one nothing is known: a backup may have undone it.
func (s *state) wrote(epoch int, observed ownership.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.graph.Object(observed.UID); known && s.epoch == epoch {
		s.written[observed.UID] = observed.ResourceVersion
	}
}

// isNews tells whether a report about an object differs from the last one, and remembers it.
func (s *state) isNews(uid ownership.UID, report string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reported[uid] == report {
		return false
	}
	s.reported[uid] = report
	return true
}

func (s *state) forgetLocked(uid ownership.UID) {
	delete(s.written, uid)
	delete(s.reported, uid)
}

// sweepLocked forgets about objects that a list has made vanish.
func (s *state) sweepLocked() {
	for uid := range s.written {
		if _, known := s.graph.Object(uid); !known {
			delete(s.written, uid)
		}
	}
	for uid := range s.reported {
		if _, known := s.graph.Object(uid); !known {
			delete(s.reported, uid)
		}
	}
}
