package crowd

import (
	"slices"
	"sort"
)

// The revisions of the objects begin here, so that all have the same number of digits.
const firstRevision = 1_000_000_000

// keptEvents is the number of the latest events of a kind that a watch can begin with.
const keptEvents = 200_000

// eventKind is the kind of a change.
type eventKind uint8

const (
	modified eventKind = iota
	deleted
)

// event is a change of an object.
type event struct {
	revision uint64
	number   Number
	kind     eventKind
}

// history has the latest events of one kind of objects. Positions count all events; the oldest ones are dropped.
type history struct {
	events  []event
	dropped int           // events before the first of events
	lost    uint64        // the revision of the last dropped event
	wake    chan struct{} // closed at the next event; nil if nobody waits
}

func (h *history) add(e event) {
	if len(h.events) >= 2*keptEvents {
		h.dropped += len(h.events) - keptEvents
		h.lost = h.events[len(h.events)-keptEvents-1].revision
		h.events = slices.Clone(h.events[len(h.events)-keptEvents:])
	}
	h.events = append(h.events, e)
	if h.wake != nil {
		close(h.wake)
		h.wake = nil
	}
}

// end returns the position of the next event.
func (h *history) end() int { return h.dropped + len(h.events) }

// after returns the position of the first event after a revision, if no such event was dropped.
func (h *history) after(revision uint64) (position int, known bool) {
	if revision < h.lost {
		return 0, false
	}
	return h.dropped + sort.Search(len(h.events), func(i int) bool { return h.events[i].revision > revision }), true
}

// from copies events from a position on, as many as fit. It reports whether none of them was dropped.
func (h *history) from(position int, to []event) (copied []event, known bool) {
	if position < h.dropped {
		return nil, false
	}
	return to[:copy(to[:cap(to)], h.events[position-h.dropped:])], true
}

// waiting returns a channel that is closed at the next event.
func (h *history) waiting() <-chan struct{} {
	if h.wake == nil {
		h.wake = make(chan struct{})
	}
	return h.wake
}
