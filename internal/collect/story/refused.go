package story

import (
	"fmt"
	"slices"
	"time"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
)

const (
	// mostWords bounds the kept words of a refusal, in bytes. There are none while the texts of all objects take more
	// than half of their limit.
	mostWords = 512
	// mostRefusers bounds the refusers in the text of a story.
	mostRefusers = 16
)

// Refusal is the last refusal of the server to delete or to change an object of a story (R31).
type Refusal struct {
	// By, Refuser, Binding and Message are as in the status of the collector.
	By      string    `json:"by"`
	Refuser string    `json:"refuser,omitempty"`
	Binding string    `json:"binding,omitempty"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since"`
	Count   int       `json:"count"`
	// Ended is when a request was accepted, none was needed any longer, or the object was gone; nil while the refusal lasts.
	Ended *time.Time `json:"ended,omitempty"`
}

// refused is the refusal of an entry. It never changes: readers have copies of the entry. Times are in nanoseconds.
type refused struct {
	refusal.Refusal

	since, ended int64
	count        int
}

func (r *refused) lasts() bool { return r != nil && r.ended == 0 }

func (r *refused) bytes() int {
	if r == nil {
		return 0
	}
	return len(r.Name) + len(r.Binding) + len(r.Message)
}

// again returns the refusal after another one. It is a new one if the former has ended.
func (r *refused) again(now refusal.Refusal, at time.Time) *refused {
	next := &refused{Refusal: now, since: at.UnixNano(), count: 1}
	if r.lasts() {
		next.since, next.count = r.since, r.count+1
	}
	return next
}

// over returns the refusal after its end.
func (r *refused) over(now time.Time) *refused {
	if !r.lasts() {
		return r
	}
	next := *r
	next.ended = now.UnixNano()
	return &next
}

// view returns the refusal for readers.
func (r *refused) view() *Refusal {
	if r == nil {
		return nil
	}
	return &Refusal{
		By: string(r.By), Refuser: r.Name, Binding: r.Binding, Message: r.Message, Since: time.Unix(0, r.since).UTC(), Count: r.count, Ended: at(r.ended),
	}
}

// Refused records that the server refuses a request about an object: it belongs to the story of an owner or a home that
// goes. home is as in Seen. A protected object is recorded by its label instead (Seen).
func (b *Book) Refused(o *ownership.Object, home ownership.UID, r refusal.Refusal, now time.Time) {
	if r.By == refusal.ByProtection {
		return
	}
	r.Message = ownership.Excerpt(r.Message, mostWords)
	if b.usage.bytes > b.limits.bytes/2 {
		r.Message = ""
	}
	m, known := b.membership.of(o.UID)
	switch {
	case known && (m.entry == nil || m.entry.gone != 0):
		return // it is only counted, or gone meanwhile
	case !known || m.entry.kept:
		s, in := b.membership.storyOf(o, home, lag, now)
		if s == nil {
			return // its owners have gone without a story
		}
		if !known || s != m.story && m.story.isDone(now) {
			m = b.add(s, &entry{
				Ref: Ref{Kind: b.names.of(o.Kind), Namespace: o.Namespace, NamespaceUID: home, Name: o.Name, UID: o.UID},
				in:  in, owners: b.membership.ownersOf(o), refusal: (*refused)(nil).again(r, now),
			})
			b.touch(m, now)
			return
		}
	}
	m.story.update(m.entry, func(e *entry) { e.refusal, e.kept = e.refusal.again(r, now), e.protected })
	b.usage.count(m.entry)
	b.touch(m, now)
}

// RefusalEnded records that the server has accepted a request about an object, or that none is needed any longer: then
// the object stays.
func (b *Book) RefusalEnded(uid ownership.UID, stays bool, now time.Time) {
	m := b.membership.members[uid]
	if m.entry == nil || !m.entry.refusal.lasts() {
		return
	}
	m.story.update(m.entry, func(e *entry) {
		e.refusal = e.refusal.over(now)
		e.kept = e.kept || stays && e.marked == 0
	})
	b.touch(m, now)
}

// sayRefusals writes the refusals of objects, one line for each refuser.
func sayRefusals(objects []Object, say func(format string, args ...any)) {
	type group struct {
		first *Object
		more  int
	}
	var groups []group
	further := 0
	for n := range objects {
		o := &objects[n]
		if o.Refusal == nil {
			continue
		}
		at := slices.IndexFunc(groups, func(g group) bool { return g.first.Refusal.isLike(o.Refusal) })
		switch {
		case at >= 0:
			groups[at].more++
		case len(groups) < mostRefusers:
			groups = append(groups, group{first: o})
		default:
			further++
		}
	}
	for _, g := range groups {
		r, some := g.first.Refusal, g.first.String()
		if g.more > 0 {
			some += fmt.Sprintf(" and %d more", g.more)
		}
		since := r.Since.UTC().Format(time.RFC3339)
		says := refusal.Refusal{By: refusal.By(r.By), Name: r.Refuser, Binding: r.Binding, Message: r.Message}.String()
		if r.Ended == nil {
			say("refused: %s, %s since %s: %s\n", some, times(r.Count), since, says)
		} else {
			say("was refused: %s, %s from %s to %s: %s\n", some, times(r.Count), since, r.Ended.UTC().Format(time.RFC3339), says)
		}
	}
	if further > 0 {
		say("and %d more that others refuse\n", further)
	}
}

// isLike reports whether two refusals have the same refuser, and both last or have ended.
func (r *Refusal) isLike(other *Refusal) bool {
	return r.By == other.By && r.Refuser == other.Refuser && r.Binding == other.Binding && (r.Ended == nil) == (other.Ended == nil)
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
