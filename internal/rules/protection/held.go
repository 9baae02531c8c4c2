package protection

import "time"

// Held is the refusal of a deletion, as a controller remembers it that would delete again. It is
// level-triggered: a deletion is tried again when the object has changed, since its protection may have
// been lifted, and otherwise after RetryAfter, since what it outlives may be gone. An object that
// changes all the time is tried less and less often, down to once in RetryAfter.
type Held struct {
	// Message is what the refusal said.
	Message string

	version string // the resourceVersion of the object that was refused
	at      time.Time
	changes int // how often in a row it was refused because it had changed
}

// maxChanges is the number of changes after which the next one waits as long as no change does.
const maxChanges = 6

// Refuse returns what is to be remembered of another refusal; h is the zero value at the first.
func (h Held) Refuse(version, message string, now time.Time) Held {
	next := Held{Message: message, version: version, at: now}
	if h.version != "" && h.version != version {
		next.changes = min(h.changes+1, maxChanges)
	}
	return next
}

// Wait returns how long not to try again to delete the object as it is at a version; 0: it may be tried.
func (h Held) Wait(version string, now time.Time) time.Duration {
	wait := RetryAfter
	if version != h.version {
		wait = min(wait, time.Duration(1<<h.changes-1)*time.Second)
	}
	return max(0, h.at.Add(wait).Sub(now))
}
