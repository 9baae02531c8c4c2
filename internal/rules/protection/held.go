package protection

import (
	"slices"
	"strings"
	"time"
)

// Held is a refused deletion that a controller remembers, to know when to try it again. It is
// level-triggered: the controller tries again when the object has changed, since its protection may have
// been lifted, when an object is gone that it outlives, and otherwise after RetryAfter. For an object that
// changes all the time the wait grows, up to RetryAfter.
type Held struct {
	// Message is the message of the refusal.
	Message string

	version string // the resourceVersion of the object that was refused
	at      time.Time
	changes int // successive refusals at different resourceVersions
}

// maxChanges is the number of changes from which on the wait is RetryAfter, as without a change.
const maxChanges = 6

// Refuse returns the state after another refusal; h is the zero value at the first.
func (h Held) Refuse(version, message string, now time.Time) Held {
	next := Held{Message: message, version: version, at: now}
	if h.version != "" && h.version != version {
		next.changes = min(h.changes+1, maxChanges)
	}
	return next
}

// Names reports whether the refusal names an object, which the protected one may outlive.
func (h Held) Names(name string) bool {
	isSeparator := func(r rune) bool { return strings.ContainsRune(" /,:;\"'", r) }
	return slices.Contains(strings.FieldsFunc(h.Message, isSeparator), name)
}

// Freed returns the state in which the deletion is tried at once.
func (h Held) Freed() Held {
	h.at = time.Time{}
	return h
}

// Wait returns how long to wait before the deletion of the object at a version is tried again; 0: try now.
func (h Held) Wait(version string, now time.Time) time.Duration {
	wait := RetryAfter
	if version != h.version {
		wait = min(wait, time.Duration(1<<h.changes-1)*time.Second)
	}
	return max(0, h.at.Add(wait).Sub(now))
}
