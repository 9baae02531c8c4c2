package faults

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// Entry is a request with its faults.
type Entry struct {
	Time    time.Time
	Request Request
	Fate    Fate
	// Other is a fault that does not belong to a request; Request and Fate are empty then.
	Other string
}

// String describes the faults, for people.
func (e Entry) String() string {
	if e.Other != "" {
		return e.Other
	}
	var parts []string
	if e.Fate.Refusal != "" {
		parts = append(parts, "refused: "+string(e.Fate.Refusal))
	}
	if e.Fate.OtherWriter {
		parts = append(parts, "somebody else wrote before")
	}
	if e.Fate.Age != 0 {
		parts = append(parts, "answered from a state of "+e.Fate.Age.String()+" before")
	}
	if e.Fate.Loss != "" {
		parts = append(parts, "carried out, answer lost: "+string(e.Fate.Loss))
	}
	if e.Fate.Expired {
		parts = append(parts, "not resumed: 410 Expired")
	}
	if e.Fate.Lag != (Range{}) {
		parts = append(parts, "events late by "+e.Fate.Lag.String())
	}
	if e.Fate.End != 0 {
		parts = append(parts, "ends after "+e.Fate.End.String())
	}
	return strings.Join(parts, ", ")
}

// mostEntries is the number of entries that a journal keeps; mostText bounds the bytes of each text in them.
const (
	mostEntries = 4096
	mostText    = 253
)

// journal keeps the latest entries, at most 8 MB. The zero value is empty. It is safe for concurrent use.
type journal struct {
	mu      sync.Mutex
	entries []Entry // a ring, once it has mostEntries
	oldest  int
	total   int // entries so far
}

// clip returns a text of at most mostText bytes.
func clip(text string) string {
	if len(text) > mostText {
		return strings.Clone(text[:mostText])
	}
	return text
}

func (j *journal) add(e Entry) {
	for _, text := range []*string{&e.Request.User, &e.Request.Client, &e.Request.Resource, &e.Request.Subresource, &e.Request.Namespace, &e.Request.Name} {
		*text = clip(*text)
	}
	e.Fate.events = nil
	j.mu.Lock()
	defer j.mu.Unlock()
	j.total++
	if len(j.entries) < mostEntries {
		j.entries = append(j.entries, e)
		return
	}
	j.entries[j.oldest] = e
	j.oldest = (j.oldest + 1) % mostEntries
}

// count returns how many entries there have been.
func (j *journal) count() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.total
}

// clear drops the entries.
func (j *journal) clear() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries, j.oldest = nil, 0
}

// all returns the entries, the oldest first.
func (j *journal) all() []Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Concat(j.entries[j.oldest:], j.entries[:j.oldest])
}
