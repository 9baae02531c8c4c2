package story

import (
	"slices"
	"time"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// Book has the stories of a cluster. It is not safe for concurrent use.
type Book struct {
	limits     limits
	usage      usage
	shelf      shelf
	membership membership
	requests   requests
	guards     guards
	removals   removals
	names      names
	changes    uint64 // counts events
	pause      int    // the number of stories that begin before any is forgotten again
}

// NewBook returns a Book without stories.
func NewBook() *Book {
	return &Book{
		limits: bounds(), shelf: newShelf(), membership: newMembership(bounds().further), requests: newRequests(),
		guards: newGuards(), names: names{},
	}
}

// Changes returns the number of changes so far.
func (b *Book) Changes() uint64 { return b.changes }

// Requested records a request to delete an object. The story begins when the object is marked or gone.
func (b *Book) Requested(r Request) {
	if m, known := b.membership.of(r.UID); known && (m.entry == nil || !m.entry.kept) {
		return // its story has begun
	}
	b.requests.add(r)
}

// Seen records the observation of an object. An object that is not being deleted matters only if it is
// protected. home is the UID of its namespace, empty if it is uncertain.
func (b *Book) Seen(o *ownership.Object, home ownership.UID, now time.Time) {
	if o.Phase == ownership.Active {
		b.seenActive(o, home, now)
		return
	}
	b.guards.remove(o.UID)
	m := b.memberOf(o, home, now)
	e := m.entry
	if e == nil || e.gone != 0 {
		return
	}
	isNew, before := e.marked == 0, e.phase
	if isNew {
		m.story.update(e, func(e *entry) { e.marked = now.UnixNano() })
		e.refusal = e.refusal.over(now) // the refusal to mark it
	}
	if isNew || e.due != o.Due || e.phase != o.Phase || !slices.Equal(e.finalizers, o.Finalizers) {
		e.due, e.phase, e.finalizers = o.Due, o.Phase, o.Finalizers
		b.usage.count(e)
		b.touch(m, now)
	}
	if isNew && e.Kind == "Namespace" {
		b.gather(m.story, o, now)
	}
	if isNew || e.phase != before {
		b.waitForGuards(e, now)
	}
}

// Gone records that an object, in its last observed state, is gone. home is as in Seen.
func (b *Book) Gone(o *ownership.Object, home ownership.UID, now time.Time) {
	b.guards.remove(o.UID)
	if m := b.memberOf(o, home, now); m.entry == nil || m.entry.gone == 0 {
		b.gone(m, now)
	}
}

// Listed records that all objects of a kind were listed: waiting objects that are not in the list are gone.
func (b *Book) Listed(kind ownership.Kind, isThere func(ownership.UID) bool, now time.Time) {
	name := b.names.of(kind)
	b.guards.removeAll(func(g *guard) bool { return g.Kind == name && !isThere(g.UID) })
	for _, s := range b.shelf.order {
		if s.counts[stateWaiting] == 0 {
			continue
		}
		for _, e := range s.entries {
			if e.state() == stateWaiting && e.Kind == name && !isThere(e.UID) {
				b.gone(member{s, e}, now)
			}
		}
	}
}

// gone records the removal of a member.
func (b *Book) gone(m member, now time.Time) {
	if m.entry == nil {
		m.story.further.gone++
	} else {
		m.story.update(m.entry, func(e *entry) { e.gone, e.finalizers, e.refusal = now.UnixNano(), nil, e.refusal.over(now) })
		b.usage.count(m.entry)
	}
	m.story.rate.add(now)
	b.touch(m, now)
}

// Stayed records that an object stays although an owner is deleted: lost are the owners that it had, and
// keptBy the remaining owners, if any. It belongs to the story of the lost owner.
func (b *Book) Stayed(object Ref, keptBy, lost []Ref, now time.Time) {
	for _, owner := range lost {
		of, known := b.membership.of(owner.UID)
		if !known {
			continue
		}
		m, known := b.membership.of(object.UID)
		switch {
		case known && (m.story != of.story || m.entry == nil || m.entry.marked != 0 || m.entry.gone != 0):
			return // it is being deleted itself, or is in another story
		case !known:
			e := &entry{Ref: object, kept: true}
			for _, o := range slices.Concat(lost, keptBy) {
				e.owners = append(e.owners, Owner{UID: o.UID})
			}
			m = b.add(of.story, e)
		}
		if e := m.entry; e != nil {
			m.story.update(e, func(e *entry) { e.kept = true })
			e.keptBy, e.lost = keptBy, append(e.lost, lost...)
			e.lost = e.lost[max(0, len(e.lost)-mostOwners):]
			b.usage.count(e)
		}
		b.touch(m, now)
		return
	}
}

// memberOf returns the story of an object that is marked or gone, and begins a story if it has none.
func (b *Book) memberOf(o *ownership.Object, home ownership.UID, now time.Time) member {
	m, known := b.membership.of(o.UID)
	if e := m.entry; e != nil && e.NamespaceUID == "" && home != "" {
		e.NamespaceUID = home // it is certain now
		b.usage.count(e)
	}
	if known && (m.entry == nil || !m.entry.kept) {
		return m
	}
	request, wait := b.requests.of(o.UID), lag
	if request != nil {
		wait = 0 // it may be in another namespace, which has the name now
	}
	s, in := b.membership.storyOf(o, home, wait, now)
	if known && (s == m.story || request == nil && !m.story.isDone(now)) {
		m.story.update(m.entry, func(e *entry) { e.kept, e.protected = false, false }) // it is deleted now, too
		return m
	}
	b.requests.take(o.UID)
	e := &entry{
		Ref: Ref{Kind: b.names.of(o.Kind), Namespace: o.Namespace, NamespaceUID: home, Name: o.Name, UID: o.UID},
		in:  in, owners: b.membership.ownersOf(o),
	}
	if s != nil {
		return b.add(s, e)
	}
	if s := b.shelf.ofRequest(request); s != nil {
		m := b.add(s, e)
		if m.entry != nil {
			s.addRoot(e)
		}
		return m
	}
	return b.begin(e, originOf(request, o.Phase, now))
}

// begin begins a story.
func (b *Book) begin(root *entry, from origin) member {
	s := &story{origin: from, last: from.began}
	b.shelf.add(root.UID, s)
	m := b.add(s, root)
	s.addRoot(root)
	b.forget(from.began)
	return m
}

// add adds an object to a story. Beyond the limit only the object's story is kept; a root always has an entry.
func (b *Book) add(s *story, e *entry) member {
	m := member{s, e}
	if len(s.entries) > 0 && b.usage.isFull(&b.limits) {
		m.entry = nil
		s.further.all++
		b.membership.addFurther(s, e.UID)
	} else {
		s.add(e)
		b.usage.objects++
		b.usage.count(e)
		b.membership.add(s, e)
	}
	switch s.size() {
	case 1:
		b.usage.singles++
	case 2:
		b.usage.singles--
	}
	return m
}

// gather merges the stories of objects in a namespace that is being deleted into its story: the watches of
// its contents may have been faster than the watch of namespaces. A deletion that a user requested stays a
// separate story.
func (b *Book) gather(to *story, namespace *ownership.Object, now time.Time) {
	order := b.shelf.order
	for at := len(order) - 1; at >= 0 && now.Sub(order[at].began) < lag; at-- {
		from := order[at]
		root := from.roots[0]
		isInside := root.Namespace == namespace.Name && (root.NamespaceUID == "" || root.NamespaceUID == namespace.UID)
		if from == to || from.by != nil || !isInside {
			continue
		}
		b.membership.moveFurther(from, to)
		b.drop(at)
		if root.in == "" {
			root.in = namespace.UID
		}
		for _, e := range from.entries {
			m := b.add(to, e)
			if m.entry == nil && e.gone != 0 {
				to.further.gone++
			}
			b.touch(m, now)
		}
		to.further.all, to.further.gone = to.further.all+from.further.all, to.further.gone+from.further.gone
		to.rate.merge(&from.rate, now)
	}
}

// touch records a change of a member, or of its story only.
func (b *Book) touch(m member, now time.Time) {
	b.changes++
	m.story.change, m.story.last = b.changes, now
	if m.entry != nil {
		m.entry.change, m.entry.last = b.changes, now.UnixNano()
		m.story.journal.add(m.entry.at, len(m.story.entries))
	}
}
