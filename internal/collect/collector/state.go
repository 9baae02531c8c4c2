package collector

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/collect/collector/barrier"
	"github.com/coppice-dev/coppice/internal/collect/feed"
	"github.com/coppice-dev/coppice/internal/collect/refused"
	"github.com/coppice-dev/coppice/internal/collect/storybook"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
)

// Sink receives the feed's observations. It may be used before Run.
func (c *Collector) Sink() feed.Sink { return sink{c.state, c.barrier, c.stats} }

// sink applies observations to the state, and passes the ones that may end a hold to the barrier.
type sink struct {
	*state
	barrier *barrier.Barrier
	stats   *counters
}

// EndList implements feed.Sink.
func (s sink) EndList(kind ownership.Kind) {
	s.state.EndList(kind)
	s.barrier.KindListed(kind)
}

// SetScope implements feed.Sink.
func (s sink) SetScope(kind ownership.Kind, scope ownership.Scope) {
	s.state.SetScope(kind, scope)
	s.barrier.ScopeChanged(kind, scope)
}

// NewEpoch implements feed.Sink.
func (s sink) NewEpoch() {
	s.stats.epochs.Add(1)
	s.state.NewEpoch()
	s.barrier.NewEpoch()
}

// state is the collector's knowledge: the ownership graph, and some facts beside it that are dropped when the
// graph moves on. The feed's observations are applied to it, and the objects that they concern are added to
// the queue. No slow operation runs under its lock.
type state struct {
	queue   Queue
	clock   clock.PassiveClock // its time goes into the evidence
	stories *storybook.Book    // nil: no stories are recorded
	// removals are called when an object is forgotten, after the graph knows it; changes when a refuser has changed.
	removals listeners[string]
	changes  listeners[[]refusal.By]

	piece     int         // see Config.Piece
	refilling sync.Mutex  // held by refill
	crowded   atomic.Bool // the graph has objects to reconsider that are not queued; written under mu

	mu    sync.Mutex
	graph *ownership.Graph // guarded by mu, and so is all below
	// inTerm means that the queue keeps the keys that it gets (term.go).
	inTerm bool
	epoch  atomic.Int64 // the number of the current epoch (R4); written under mu

	// written holds the resourceVersion at which the collector wrote an object successfully, until a newer
	// version of the object is known. Deciding on that version again would only send the same request again. It
	// does not outlive an epoch (R4): a restored backup may have undone the write.
	written map[ownership.UID]string
	// presumed holds the claims on an owner that was read live but is not
	// observed. They are read again until the owner is observed or gone.
	presumed map[ownership.UID]map[ownership.Claim]bool
	// reported maps an object to the beginning of the last report about it.
	reported map[ownership.UID]string
	// protected holds the refusals to delete objects that are protected (R28).
	protected map[ownership.UID]protection.Held
	// refused holds the objects that the server refuses to delete or to change (R31), and retried the times at which
	// changes of refusers have last ended the back-off of these objects.
	refused refused.List
	retried map[refusal.By]time.Time
	// homes holds the namespaces that are there.
	homes homes
}

// newState returns a state that knows nothing. It needs a queue.
func newState(config Config) *state {
	graph := ownership.NewKeeping(config.References)
	graph.InPieces(config.Piece)
	return &state{
		piece:    config.Piece,
		clock:    config.Clock,
		graph:    graph,
		written:  make(map[ownership.UID]string),
		presumed: make(map[ownership.UID]map[ownership.Claim]bool),
		reported: make(map[ownership.UID]string),

		protected: make(map[ownership.UID]protection.Held),
		retried:   make(map[refusal.By]time.Time),
		homes:     make(homes),
	}
}

// change applies a change to the graph and enqueues the objects that it concerns, but of the dependents of a crowded owner
// only as many as refill does.
func (s *state) change(apply func(g *ownership.Graph) []ownership.UID) {
	s.mu.Lock()
	uids := apply(s.graph)
	s.crowded.Store(s.graph.HasRest())
	s.mu.Unlock()
	s.queue.Add(uids...)
	s.refill()
}

// refill enqueues further dependents of crowded owners, piece by piece, while less than a piece waits: a queue of all of
// them would take more memory than the graph, and its maps never shrink. Each worker calls it after it has taken a key, so
// that the queue is not empty while there are more.
func (s *state) refill() {
	if !s.crowded.Load() {
		return
	}
	s.refilling.Lock()
	defer s.refilling.Unlock()
	for s.crowded.Load() && s.waiting() < s.piece {
		s.mu.Lock()
		uids, more := s.graph.Rest()
		s.crowded.Store(more)
		s.mu.Unlock()
		s.queue.Add(uids...)
	}
}

// waiting returns the number of keys that wait for a worker; none if the queue cannot tell.
func (s *state) waiting() int {
	if q, ok := s.queue.(interface{ Len() int }); ok {
		return q.Len()
	}
	return 0
}

// include adds objects to sorted ones. An object that is added to the queue twice is reconsidered twice if a worker takes
// it between the two.
func include(uids []ownership.UID, more ...ownership.UID) []ownership.UID {
	for _, uid := range more {
		if i, found := slices.BinarySearch(uids, uid); !found {
			uids = slices.Insert(uids, i, uid)
		}
	}
	return uids
}

// Observe implements feed.Sink.
func (s *state) Observe(o ownership.Object) {
	defer s.retryRefused(o.Kind)
	s.change(func(g *ownership.Graph) []ownership.UID {
		s.homes.observe(&o)
		if s.stories != nil {
			s.stories.Seen(&o, s.homes.at(o.Namespace, o.ResourceVersion), s.clock.Now())
		}
		uids := g.Observe(o)
		if s.refused.Has(o.UID) {
			uids = include(uids, o.UID) // it may have lost its owners
		}
		return uids
	})
}

// Forget implements feed.Sink.
func (s *state) Forget(uid ownership.UID, resourceVersion string) {
	namespace, kind := "", ownership.Kind{} // the watch event has only a UID
	s.change(func(g *ownership.Graph) []ownership.UID {
		s.forgetLocked(uid)
		now := s.clock.Now()
		var freed []ownership.UID
		if o, known := g.Object(uid); known {
			namespace, kind, freed = o.Namespace, o.Kind, s.freedLocked(o.Name)
			s.homes.forget(&o)
			if s.stories != nil {
				s.stories.Gone(&o, s.homes.at(o.Namespace, resourceVersion), now)
			}
		}
		g.SetTime(now.UnixNano())
		return include(g.Forget(uid, resourceVersion), freed...)
	})
	s.retryRefused(kind)
	if namespace != "" {
		s.removals.call(namespace)
	}
}

// SetScope implements feed.Sink.
func (s *state) SetScope(kind ownership.Kind, scope ownership.Scope) {
	s.change(func(g *ownership.Graph) []ownership.UID { return g.SetScope(kind, scope) })
}

// NewEpoch implements feed.Sink.
func (s *state) NewEpoch() {
	s.change(func(g *ownership.Graph) []ownership.UID {
		s.epoch.Add(1)
		clear(s.written)
		clear(s.homes) // their revisions are of another history
		return g.NewEpoch()
	})
}

// refresh applies an object as the server returned it to a request that began in the given epoch. If another
// epoch has begun since, the answer is dropped: it may show a state that was undone.
func (s *state) refresh(epoch int, o ownership.Object) {
	s.change(func(g *ownership.Graph) []ownership.UID {
		if s.Epoch() != epoch {
			return nil
		}
		return g.Refresh(o)
	})
}

// Confirm implements barrier.Graph.
func (s *state) Confirm(epoch int, o ownership.Object) (known bool) {
	s.change(func(g *ownership.Graph) (uids []ownership.UID) {
		if s.Epoch() == epoch {
			uids, known = g.Confirm(o)
		}
		return uids
	})
	return known
}

// isStale reports whether an object was not observed in this epoch (R4).
func (s *state) isStale(uid ownership.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.graph.Stale(uid)
}

// Count implements barrier.Graph.
func (s *state) Count(kind ownership.Kind) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.graph.Count(kind)
}

// vanish records that a live read found no object, or another one, under this object's name.
func (s *state) vanish(uid ownership.UID) {
	s.change(func(g *ownership.Graph) []ownership.UID {
		s.forgetLocked(uid)
		return g.Vanish(uid)
	})
}

// Epoch implements barrier.Graph. Requests note the epoch that they begin in. It takes no lock: each write compares it.
func (s *state) Epoch() int { return int(s.epoch.Load()) }

// resolve records the answer to a live read of a claim that began in the given epoch. It reports whether the
// claim needs to be read again: the owner is present, the claim is still made, and the owner is not observed,
// so that no event would report its removal.
func (s *state) resolve(epoch int, claim ownership.Claim, presence ownership.Presence, phase ownership.Phase) (needsRead bool) {
	s.change(func(g *ownership.Graph) []ownership.UID {
		if s.Epoch() != epoch {
			presence = ownership.Unknown // the answer may be outdated; the dependents come back
		}
		g.SetTime(s.clock.Now().UnixNano())
		uids := g.Resolve(claim, presence, phase)
		_, observed := g.Object(claim.UID)
		needsRead = presence == ownership.Present && !observed && len(uids) > 0
		if needsRead {
			s.presumeLocked(claim)
		} else {
			s.settleLocked(claim)
		}
		return uids
	})
	return needsRead
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

// presumptions returns the claims on an owner that was read live but is not observed. Claims that are no
// longer Present are dropped: no dependent makes them, or the kind is not served now, or another epoch has
// begun; a dependent that still makes one requests its verification.
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

func (s *state) object(uid ownership.UID) (ownership.Object, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.graph.Object(uid)
}

// kind returns the kind of an observed object. It is cheaper than object.
func (s *state) kind(uid ownership.UID) (kind ownership.Kind, isObserved bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kind, _, isObserved = s.graph.Place(uid)
	return kind, isObserved
}

// namespace returns the namespace of an object; "" when it is cluster-scoped or not known.
func (s *state) namespace(uid ownership.UID) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.graph.Namespace(uid)
}

func (s *state) presence(claim ownership.Claim) ownership.Presence {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.graph.Presence(claim)
}

// gather returns the facts about an object. There are no facts if the object is not known, or was written at
// the known version.
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

// wrote records that a write conditioned on this observation has succeeded, which began in
// the given epoch. If another one has begun since, a restored backup may have undone it.
func (s *state) wrote(epoch int, observed ownership.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.graph.Object(observed.UID); known && s.Epoch() == epoch {
		s.written[observed.UID] = observed.ResourceVersion
	}
}

// isNewReport reports whether a report about an object differs from the last one, and remembers it.
func (s *state) isNewReport(uid ownership.UID, report string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	report = ownership.Excerpt(report, maxText)
	if s.reported[uid] == report {
		return false
	}
	s.reported[uid] = report
	return true
}

func (s *state) forgetLocked(uid ownership.UID) {
	delete(s.written, uid)
	delete(s.reported, uid)
	delete(s.protected, uid)
	s.refused.Forget(uid)
}
