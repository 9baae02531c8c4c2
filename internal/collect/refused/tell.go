package refused

import (
	"slices"
	"time"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
)

const (
	// patience is the time for which refusals last that may end by themselves, before there is an Event.
	patience = 10 * time.Second
	// again is the time after which there is another Event. Servers keep Events for an hour.
	again = time.Hour
	// maxRefusers bounds the Events about one object in that time, and maxTold the objects that have any.
	maxRefusers, maxTold = 3, 2 * maxObjects
)

// told is an object about which there are Events.
type told struct {
	since    time.Time
	refusers []refuser
}

// refuser identifies a refuser. Its words may differ each time.
type refuser struct {
	by            refusal.By
	name, binding string
}

// IsLasting reports whether the refusal of a request about an object is to be told: it does not end by itself, or has
// lasted.
func (l *List) IsLasting(refused ownership.UID, r refusal.Refusal, now time.Time) bool {
	e, known := l.objects[refused]
	return known && l.listed[refused] != nil && (!r.By.MayPass() || now.Sub(e.since) >= patience)
}

// Tell reports whether an Event about a refusal is due on an object: the refused one, or another one that waits for it.
// There is one for each refuser.
func (l *List) Tell(on ownership.UID, r refusal.Refusal, now time.Time) bool {
	if l.told == nil {
		l.told = make(map[ownership.UID]*told)
	}
	t, known := l.told[on]
	if !known && len(l.told) >= maxTold {
		return false
	}
	if !known || now.Sub(t.since) >= again {
		t = &told{since: now}
		l.told[on] = t
	}
	by := refuser{r.By, r.Name, r.Binding}
	if len(t.refusers) >= maxRefusers || slices.Contains(t.refusers, by) {
		return false
	}
	t.refusers = append(t.refusers, by)
	return true
}
