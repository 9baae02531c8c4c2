package collector

import (
	"fmt"
	"slices"
	"time"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// waiting is an object that waits for a place.
type waiting struct {
	uid   ownership.UID
	since time.Time
}

// wait is the wait of an object. Its tenant is the one that the object had when it began.
type wait struct {
	tenant string
	places int // for so many; never 0
}

// inviteLocked takes the free places of a kind for objects that wait for one.
func (p *places) inviteLocked(g group) (invited []ownership.UID) {
	k := p.kinds[g]
	if k == nil {
		return nil
	}
	n := p.limitLocked(g, k) - k.taken
	if n > slowPlaces {
		n = invitedAtOnce
	}
	n = max(0, min(n, k.waiting.Len()))
	for range n {
		uid := p.popLocked(k)
		p.invited[uid] = append(p.invited[uid], g)
		invited = append(invited, uid)
	}
	p.updateLocked(k, func() { k.taken += n })
	if k.taken == 0 && k.answers == quickly {
		delete(p.kinds, g)
	}
	return invited
}

// pushLocked has an object of a tenant wait for a place.
func (p *places) pushLocked(k *kindPlaces, one waiting, tenant string) {
	if k.isIn[one.uid] {
		return
	}
	w := p.waits[one.uid]
	if w == nil {
		w = &wait{tenant: tenant}
		p.waits[one.uid] = w
		p.waitsOf[tenant]++
	}
	w.places++
	k.isIn[one.uid] = true
	k.waiting.Push(w.tenant, one)
}

// popLocked ends the wait of the object whose turn it is.
func (p *places) popLocked(k *kindPlaces) ownership.UID {
	uid := k.waiting.Pop().uid
	delete(k.isIn, uid)
	w := p.waits[uid]
	if w.places--; w.places > 0 {
		return uid
	}
	delete(p.waits, uid)
	if p.waitsOf[w.tenant]--; p.waitsOf[w.tenant] == 0 {
		delete(p.waitsOf, w.tenant)
	}
	return uid
}

// length returns how many objects wait, and how long the first of them has waited.
func (p *places) length() (objects int, oldest time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range p.kinds {
		for first := range k.waiting.Firsts() {
			oldest = max(oldest, p.clock.Since(first.since))
		}
	}
	return len(p.waits), oldest
}

// lengthOf returns how many objects of a tenant wait.
func (p *places) lengthOf(tenant string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waitsOf[tenant]
}

// describe returns how many objects wait, by kind.
func (p *places) describe() (waiting []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for g, k := range p.kinds {
		if n := k.waiting.Len(); n > 0 {
			waiting = append(waiting, fmt.Sprintf("objects that wait for other requests for %s: %d", g.kind, n))
		}
	}
	slices.Sort(waiting)
	return waiting
}
