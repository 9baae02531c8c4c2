package collector

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
)

// The graph keeps a few owner references of an object that has many (ownership.NewKeeping). Before a decision that
// depends on the others, the collector reads the whole list live. It forgets the list, and the answers about the owners,
// after the decision: a decision about an object with many owners costs reads each time, and no memory.

// wholeAtOnce bounds the decisions that hold whole lists at the same time. A list may have a megabyte.
const wholeAtOnce = 4

// busyDelay is the time after which an object is reconsidered that found wholeAtOnce others.
const busyDelay = 100 * time.Millisecond

// busyError means that an object has to wait for others with many owners.
type busyError struct{}

func (busyError) Error() string {
	return fmt.Sprintf("%d other objects with many owners are being decided on", wholeAtOnce)
}

// beginWhole takes one of the places for whole lists; the caller calls end. A decision that waits for an answer for long
// gives it back earlier: then the places of the kind bound the lists.
func (c *Collector) beginWhole(ctx context.Context) (end func(), err error) {
	select {
	case c.wholes <- struct{}{}:
		end = sync.OnceFunc(func() { <-c.wholes })
		c.places.lend(ctx, end)
		return end, nil
	default:
		return nil, busyError{}
	}
}

// examined is what reads have added to the facts about an object.
type examined struct {
	facts  verdict.Facts
	isGone bool
	// unobserved means that a live read, of this object's or of another's claim, found an owner that was not observed
	// yet. So no event would report its removal.
	unobserved bool
}

// examine reads what the decision depends on and the graph does not keep.
func (c *Collector) examine(ctx context.Context, facts verdict.Facts) (examined, error) {
	if len(facts.Missing()) == 0 {
		return examined{facts: facts}, nil
	}
	end, err := c.beginWhole(ctx)
	if err != nil {
		return examined{facts: facts}, err
	}
	defer end()
	ctx = holdingWhole(ctx)
	e := examined{facts: facts}
	if facts.Object.MoreOwners > 0 {
		e, err = c.readWhole(ctx, facts.Object)
	}
	if err != nil || e.isGone {
		return e, err
	}
	err = c.readDependents(ctx, &e)
	return e, err
}

// readWhole reads an object and its unknown owners live.
func (c *Collector) readWhole(ctx context.Context, self ownership.Object) (examined, error) {
	answers, epoch := make(map[ownership.Claim]ownership.Answer), -1
	for range immediateTries {
		now, same, err := c.readAgain(ctx, self)
		if err != nil || !same {
			return examined{facts: verdict.Facts{Object: self}, isGone: !same}, err
		}
		c.state.recut(now)
		if current := c.state.Epoch(); current != epoch {
			epoch = current
			clear(answers) // R4
		}
		e, ok := c.state.gatherWhole(epoch, now, answers)
		if open := unverified(e.facts); ok && len(open) > 0 {
			if err := c.readClaims(ctx, open, answers); err != nil {
				return e, err
			}
			e, ok = c.state.gatherWhole(epoch, now, answers)
		}
		if ok && len(unverified(e.facts)) == 0 {
			return e, nil
		}
	}
	return examined{facts: verdict.Facts{Object: self}}, hotError{client.RefOf(self)}
}

// unverified returns the claims that have to be read before a decision about an active object.
func unverified(f verdict.Facts) []ownership.Claim {
	if f.Object.Phase != ownership.Active {
		return nil
	}
	var claims []ownership.Claim
	for _, o := range f.Owners {
		if o.Standing == verdict.Unverified {
			claims = append(claims, o.Claim)
		}
	}
	return claims
}

// readClaims reads owners live, as verify does, and adds the answers. It reads all at once: nothing keeps some of the
// answers until the object is reconsidered.
func (c *Collector) readClaims(ctx context.Context, claims []ownership.Claim, answers map[ownership.Claim]ownership.Answer) error {
	for _, at := range placesOf(claims) {
		if err := c.readPlace(ctx, at, answers); err != nil {
			return err
		}
	}
	return nil
}

// readPlace reads the owners at one place live, and adds the answers that are missing.
func (c *Collector) readPlace(ctx context.Context, at place, answers map[ownership.Claim]ownership.Answer) error {
	if c.isListCheaper(at) {
		found, err := c.listOwners(ctx, at)
		for _, claim := range at.claims {
			if err != nil {
				break // not every kind that can be read can be listed
			}
			owner, ok := found[claim.UID]
			answers[claim] = c.answerOf(owner, ok && owner.Name == claim.Name)
		}
	}
	for _, claim := range at.claims {
		if _, ok := answers[claim]; ok {
			continue
		}
		owner, isThere, err := c.readOwner(ctx, claim)
		if err != nil {
			return err
		}
		answers[claim] = c.answerOf(owner, isThere)
	}
	return nil
}

func (c *Collector) answerOf(owner ownership.Object, isThere bool) ownership.Answer { //nolint:revive // flag-parameter: it is what was read
	a := ownership.Answer{Presence: ownership.Absent, Time: c.clock.Now().UnixNano()}
	if isThere {
		a.Presence, a.Phase = ownership.Present, owner.Phase
	}
	return a
}

// readDependents reads the objects that may be dependents of an owner in foreground or orphan deletion. The facts get
// the ones that are. Afterwards they are as current as the graph: an object that has changed since it was read is read
// again.
func (c *Collector) readDependents(ctx context.Context, e *examined) error {
	owner := e.facts.Object
	read := make(map[ownership.UID]string) // the resourceVersions of the objects that are no dependents
	for range immediateTries {
		missing := e.facts.Missing()
		if len(missing) == 0 {
			return nil
		}
		for _, uid := range missing {
			version, isDependent, err := c.readDependent(ctx, owner, uid)
			switch {
			case err != nil:
				return err
			case isDependent && owner.Phase == ownership.Foreground:
				e.facts.Blocking = []ownership.UID{uid} // one is enough
				return nil
			case isDependent:
				e.facts.Dependents = append(e.facts.Dependents, uid)
			default:
				read[uid] = version
			}
		}
		if len(e.facts.Dependents) > 0 {
			return nil // the owner comes back when they are detached
		}
		if !c.state.renew(&e.facts, read) {
			break
		}
	}
	return hotError{client.RefOf(owner)}
}

// readDependent reads an object that may be a dependent, and returns its resourceVersion.
func (c *Collector) readDependent(ctx context.Context, owner ownership.Object, uid ownership.UID) (version string, isDependent bool, err error) {
	object, known := c.state.object(uid)
	if !known {
		return "", false, nil
	}
	now, same, err := c.readAgain(ctx, object)
	if err != nil || !same {
		return "", false, err
	}
	c.state.recut(now)
	version = now.ResourceVersion
	now.Owners = slices.DeleteFunc(slices.Clone(now.Owners), func(r ownership.Reference) bool {
		return r.UID != owner.UID || owner.Phase == ownership.Foreground && !r.Blocking()
	})
	for _, o := range c.state.ownersOf(now) {
		switch {
		case o.Presence == ownership.Present, o.Presence == ownership.Unknown && owner.Phase == ownership.Orphaning:
			return version, true, nil // see ownership.Graph.Orphans
		case o.Presence == ownership.Unknown && o.Obstacle == ownership.Verifiable:
			_, isThere, err := c.readOwner(ctx, o.Claim)
			if err != nil || isThere {
				return version, isThere, err // a claim on the owner in another group
			}
		}
	}
	return version, false, nil
}

// gatherWhole returns the facts about an object that was read live, with answers of the given epoch. It returns false if
// the graph has another state of the object, or another epoch has begun.
func (s *state) gatherWhole(epoch int, whole ownership.Object, answers map[ownership.Claim]ownership.Answer) (examined, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Epoch() != epoch {
		return examined{}, false
	}
	facts, ok := verdict.GatherWhole(s.graph, whole, answers)
	e := examined{facts: facts, unobserved: s.hasUnobservedLocked(facts)}
	if _, isParked := verdict.Decide(facts).(verdict.Park); ok && isParked && !e.unobserved {
		s.graph.Park(whole)
	}
	return e, ok
}

// hasUnobservedLocked reports whether an owner of an object that is there was read live, and is not observed.
func (s *state) hasUnobservedLocked(f verdict.Facts) bool {
	return slices.ContainsFunc(f.Owners, func(o verdict.Owner) bool {
		isThere := o.Standing == verdict.Solid || o.Standing == verdict.Waiting
		_, _, isObserved := s.graph.Place(o.Claim.UID)
		return isThere && o.Evidence.Source == ownership.LiveRead && !isObserved
	})
}

// renew replaces the facts about the dependents of an owner by the current ones. Objects that were read at the observed
// resourceVersion, and are no dependents, are not missing. It returns false if the owner has changed, or is part of another
// cycle: then the facts about its own owners have changed, too.
func (s *state) renew(f *verdict.Facts, read map[ownership.UID]string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, known := verdict.Gather(s.graph, f.Object.UID)
	if !known || now.Object.ResourceVersion != f.Object.ResourceVersion || !slices.Equal(now.Cycle, f.Cycle) {
		return false
	}
	f.Doubted, f.Dependents, f.Blocking, f.Doubtful = now.Doubted, now.Dependents, now.Blocking, now.Doubtful
	f.Unread = slices.DeleteFunc(now.Unread, func(uid ownership.UID) bool {
		version, isRead := read[uid]
		o, _ := s.graph.Object(uid)
		return isRead && o.ResourceVersion == version
	})
	return true
}

// ownersOf returns the owners of an object that was read live, with what the graph knows about them.
func (s *state) ownersOf(o ownership.Object) []ownership.Owner {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.graph.OwnersOf(o, nil)
}

// recut has the graph choose again which references to keep of an object that was read live.
func (s *state) recut(now ownership.Object) {
	s.change(func(g *ownership.Graph) []ownership.UID { return g.Recut(now) })
}
