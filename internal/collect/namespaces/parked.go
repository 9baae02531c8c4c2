package namespaces

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// fewParked bounds the work at a removal: more parked objects are tried again once in RetryAfter at most.
const fewParked = 64

// forgottenAfter is how long after the end of its parking an object counts as gone.
const forgottenAfter = 10 * protection.RetryAfter

// park remembers that the deletion of an object was refused because it is protected (R28).
func (t *termination) park(o Object, message string, now time.Time) {
	if t.refused == nil {
		t.refused = make(map[types.UID]protection.Held)
	}
	t.refused[o.UID] = t.refused[o.UID].Refuse(o.Version, message, now)
}

// forget drops refusals so old that their objects must be gone: no sync has tried to delete them again.
func (t *termination) forget(now time.Time) {
	maps.DeleteFunc(t.refused, func(_ types.UID, held protection.Held) bool { return held.Wait("", now.Add(-forgottenAfter)) == 0 })
}

// parked returns a function that reports whether an object is parked: its deletion was refused, it has
// not changed, and a minute is not over. The function may be called concurrently until the next call of
// park.
func (t *termination) parked(now time.Time) func(Object) (message string, parked bool) {
	if len(t.refused) == 0 {
		return nil
	}
	return func(o Object) (string, bool) {
		held, known := t.refused[o.UID]
		return held.Message, known && held.Wait(o.Version, now) > 0
	}
}

// release ends the waits of the parked objects if nothing else is left in the namespace, and something is gone since
// they were tried: they may have outlived it, or it may have used them. It reports whether it did. It is called before
// the step becomes the last one.
func (t *termination) release(step Wait, now time.Time) bool {
	t.lacks = t.lacks || step.lacks(t.last)
	if !t.lacks || step.Reason != objectsRemain || step.Parked == 0 || step.Remaining > step.Parked {
		return false
	}
	t.lacks = false
	if step.Parked > fewParked && now.Sub(t.released) < protection.RetryAfter {
		return false
	}
	t.released = now
	for uid, held := range t.refused {
		t.refused[uid] = held.Freed()
	}
	return true
}
