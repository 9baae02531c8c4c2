package collector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
)

// ReasonProtected is the reason of the Events about an object that is not collected because it is
// protected (R28), and about the owners whose foreground deletion it holds.
const ReasonProtected = "GarbageCollectionProtected"

// protectedError means that an object is parked: the server refuses its deletion because it is
// protected. The deletion is tried again when the object has changed, and otherwise after a while.
type protectedError struct {
	ref     client.Ref
	message string
	after   time.Duration
}

func (e protectedError) Error() string { return fmt.Sprintf("%s stays: %s", e.ref, e.message) }

func isProtected(err error) bool {
	_, protected := errors.AsType[protectedError](err)
	return protected
}

// checkProtected returns an error if no DELETE is sent: one was refused, and the object has not
// changed since.
func (c *Collector) checkProtected(self ownership.Object) error {
	held, ok := c.state.heldProtected(self.UID)
	if !ok {
		return nil
	}
	if wait := held.Wait(self.ResourceVersion, c.clock.Now()); wait > 0 {
		return protectedError{client.RefOf(self), held.Message, wait}
	}
	return nil
}

// hold parks an object whose deletion was refused because it is protected. Once for each new message
// of a refusal, it writes an Event about the object and about every owner that waits for it.
func (c *Collector) hold(ctx context.Context, f verdict.Facts, refused refusal.Refusal) error {
	self, message := f.Object, refused.Message
	c.state.refuse(self, report.ActionDelete, refused)
	held, isNew := c.state.protect(self, message)
	parked := protectedError{client.RefOf(self), message, held.Wait(self.ResourceVersion, c.clock.Now())}
	if !isNew {
		return parked
	}
	c.log.InfoContext(ctx, "not collected", "object", parked.ref.String(), "uid", string(self.UID), "reason", message)
	c.warn(ctx, self, ReasonProtected, "it would be collected, but is "+message)
	for _, owner := range waitingOwners(f) {
		if o, known := c.state.object(owner); known {
			c.warn(ctx, o, ReasonProtected, fmt.Sprintf("its foreground deletion waits for %s, which is %s", parked.ref, message))
		}
	}
	return parked
}

// heldProtected returns the refusal to delete an object, if there was one.
func (s *state) heldProtected(uid ownership.UID) (protection.Held, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held, ok := s.protected[uid]
	return held, ok
}

// protect remembers a refusal to delete an object, and reports whether its message is new.
func (s *state) protect(self ownership.Object, message string) (held protection.Held, isNew bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.protected[self.UID]
	held = before.Refuse(self.ResourceVersion, message, s.clock.Now())
	if _, known := s.graph.Object(self.UID); known {
		s.protected[self.UID] = held
	}
	return held, before.Message != message
}

// mostFreed bounds the work at a removal: with more protected objects than that, all wait for their next try.
const mostFreed = 64

// freedLocked ends the waits of the protected objects whose refusals name an object that is gone, and returns them.
func (s *state) freedLocked(name string) []ownership.UID {
	if len(s.protected) > mostFreed {
		return nil
	}
	var freed []ownership.UID
	for uid, held := range s.protected {
		if held.Names(name) {
			s.protected[uid] = held.Freed()
			freed = append(freed, uid)
		}
	}
	slices.Sort(freed)
	return freed
}
