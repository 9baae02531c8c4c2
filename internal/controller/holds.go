package controller

import (
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// Holds remember since when owners wait, for example to write interim statuses (pods.StartHold, pods.EndHold). A status
// that waits is written with the next reconciliation after the hold, unless a later one was written before. The zero value
// is not usable. Holds are safe for concurrent use, and keep an entry only for an owner that waits.
type Holds struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	since map[cache.ObjectName]time.Time // guarded by mu
}

// NewHolds returns empty Holds.
func NewHolds(clock clock.PassiveClock) *Holds {
	return &Holds{clock: clock, since: map[cache.ObjectName]time.Time{}}
}

// Remaining returns for how much longer the status of an owner may wait, if it may wait for most in all. The first call
// begins the hold. The result is 0 if the status must be written now.
func (h *Holds) Remaining(owner cache.ObjectName, most time.Duration) time.Duration {
	if most <= 0 {
		return 0
	}
	now := h.clock.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	since, waits := h.since[owner]
	if !waits {
		since = now
		h.since[owner] = now
	}
	return max(0, most-now.Sub(since))
}

// End ends the hold: the status was written or need not be written, or the owner is gone.
func (h *Holds) End(owner cache.ObjectName) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.since, owner)
}

// number returns how many statuses wait.
func (h *Holds) number() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.since)
}

// Sooner returns the smaller of two times until the next reconciliation; 0 means none.
func Sooner(one, other time.Duration) time.Duration {
	if one <= 0 || other > 0 && other < one {
		return other
	}
	return one
}
