package namespaces

import (
	"time"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/collect/storybook"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
)

// reportedFor is how long after its last refusal an object is reported. Objects that are still there are tried more
// often.
const reportedFor = 2 * protection.RetryAfter

// RecordIn records the refusals to delete contents in stories, too, until stop is called.
func (c *Controller) RecordIn(stories *storybook.Book) (stop func()) {
	set := func(stories *storybook.Book) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.stories = stories
	}
	set(stories)
	return func() { set(nil) }
}

// note records the answers to DELETEs: refusals for the status (R31), and those of protected objects, which are parked
// (R28).
func (c *Controller) note(namespace string, t *termination, attempts []attempt) {
	now := c.clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range attempts {
		a := &attempts[i]
		uid := ownership.UID(a.object.UID)
		if a.refusal == nil {
			if c.stories != nil && c.refused.Has(uid) {
				c.stories.RefusalEnded(uid, false, now)
			}
			c.refused.Forget(uid)
			delete(t.reported, uid)
			continue
		}
		if a.isProtected() {
			t.park(a.object, a.refusal.Message, now)
		}
		o := ownership.Object{
			Kind: ownership.Kind{Group: a.resource.Group, Kind: a.resource.Kind}, Namespace: namespace, Name: a.object.Name, UID: uid, ResourceVersion: a.object.Version,
		}
		c.refused.Add(o, report.ActionDelete, *a.refusal, now)
		if c.stories != nil {
			c.stories.Refused(&o, ownership.UID(t.uid), *a.refusal, now)
		}
		if t.reported == nil {
			t.reported = make(map[ownership.UID]time.Time)
		}
		t.reported[uid] = now
		if c.refused.Stays(uid) && !a.isProtected() {
			t.staying++
		}
	}
	for uid, last := range t.reported {
		if now.Sub(last) > reportedFor {
			c.refused.Forget(uid) // it is gone
			delete(t.reported, uid)
		}
	}
}

// RefusersChanged notifies the controller that refusers of some sorts have changed, for callers that watch them: the
// server may let contents go from now on.
func (c *Controller) RefusersChanged(by []refusal.By) {
	now := c.clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused.Changed(now, by...)
	for _, t := range c.terminations {
		t.held = t.held && len(t.reported) == 0
	}
}

// forgetRefusedLocked forgets the refused contents of a namespace, if it is known.
func (c *Controller) forgetRefusedLocked(t *termination) {
	if t == nil {
		return
	}
	for uid := range t.reported {
		c.refused.Forget(uid)
	}
}

// Refused returns the contents of namespaces that the server refuses to delete, and their number by kind and refuser.
func (c *Controller) Refused() ([]report.RefusedObject, []report.RefusedCount) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused.Status()
}
