package simulation

import (
	"slices"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/coppice-dev/coppice/internal/collect/collector"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// keys is the collector's queue. The scheduler chooses the next key and the end of each back-off;
// the rest works as in package queue: a key waits once, is with one worker at a time, and is queued
// again if it was added meanwhile.
type keys struct {
	waiting []ownership.UID        // in the order in which they were added
	backoff []ownership.UID        // wait for wake
	taken   map[ownership.UID]bool // with a worker; true: added again meanwhile
	clock   *clocktesting.FakeClock
}

var _ collector.Queue = (*keys)(nil)

func newKeys() *keys {
	return &keys{taken: make(map[ownership.UID]bool), clock: clocktesting.NewFakeClock(time.Unix(0, 0))}
}

// Add implements collector.Queue.
func (k *keys) Add(uids ...ownership.UID) {
	for _, uid := range uids {
		if _, ok := k.taken[uid]; ok {
			k.taken[uid] = true
		} else if !slices.Contains(k.waiting, uid) {
			k.waiting = append(k.waiting, uid)
		}
	}
}

// Retry implements collector.Queue.
func (k *keys) Retry(uid ownership.UID) {
	if !slices.Contains(k.backoff, uid) {
		k.backoff = append(k.backoff, uid)
	}
}

// After implements collector.Queue.
func (k *keys) After(uid ownership.UID, _ time.Duration) { k.Retry(uid) }

// Forget implements collector.Queue.
func (k *keys) Forget(ownership.UID) {}

// Take implements collector.Queue. The scheduler takes keys itself.
func (k *keys) Take() (ownership.UID, bool) { return "", false }

// Len returns the number of keys that wait for a worker.
func (k *keys) Len() int { return len(k.waiting) }

// Done implements collector.Queue.
func (k *keys) Done(uid ownership.UID) {
	again := k.taken[uid]
	delete(k.taken, uid)
	if again {
		k.Add(uid)
	}
}

// ShutDown implements collector.Queue.
func (k *keys) ShutDown() {}

// take takes the key that the scheduler has chosen.
func (k *keys) take(uid ownership.UID) bool {
	i := slices.Index(k.waiting, uid)
	if i < 0 {
		return false
	}
	k.waiting = slices.Delete(k.waiting, i, i+1)
	k.taken[uid] = false
	return true
}

// wake ends the back-off of a key: the longest possible time has passed.
func (k *keys) wake(uid ownership.UID) bool {
	i := slices.Index(k.backoff, uid)
	if i < 0 {
		return false
	}
	k.clock.Step(time.Minute)
	k.backoff = slices.Delete(k.backoff, i, i+1)
	k.Add(uid)
	return true
}
