package story

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// Book has the stories of a cluster.
type Book struct {
	limits    limits
	isGuarded atomic.Bool // whether any object is protected

	mu       sync.Mutex
	stories  map[ownership.UID]*story  // guarded by mu, like all fields below; by ID
	order    []*story                  // the oldest first
	members  map[ownership.UID]member  // the objects that have an entry
	beyond   map[uint64]*story         // the stories of the others, by hash of the UID: 100 000 take little memory
	seed     maphash.Seed              // of that hash
	byKey    map[string]*story         // of requests
	homes    map[string]*entry         // terminating namespaces and definitions, by namespaceKey and definitionKey
	requests map[ownership.UID]Request // without a story yet
	asked    []ownership.UID           // the keys of requests, the oldest first
	guards   map[ownership.UID]guard
	objects  int                       // entries in all stories
	bytes    int                       // of their texts
	singles  int                       // stories of one object
	changes  uint64                    // counts events
	removed  []removal                 // the last stories that were forgotten or merged
	kinds    map[ownership.Kind]string // their names
	wake     chan struct{}             // closed at the next change; nil without waiters
}

// removal is a story that was forgotten or merged.
type removal struct {
	heads  []head
	change uint64
}

const (
	mostRequests = 10_000
	mostRemovals = 1000
)

// story is one deletion with its objects.
type story struct {
	roots   []*entry
	heads   []*entry // the first root of each kind in each namespace; readers see all roots of a place, or none
	key     string   // of the request
	by      *By
	policy  string
	began   time.Time
	last    time.Time // time of the last change
	entries []*entry
	beyond  int // objects without an entry
	gone    int
	waiting int
	kept    int
	goneAt  [rateWindow]int // how many objects were removed in each of the last seconds, up to second
	second  int64
	change  uint64 // of the Book, when the story changed last
	guarded uint64 // of the Book, when a protected object that it waits for changed last
	// waitsFound are the waits that were computed at waitsAt, at the change waitsChange.
	waitsFound  []wait
	waitsAt     time.Time
	waitsChange uint64
	// log has the places of the entries that have changed, in order; base is how many were dropped from it.
	log  []int32
	base int
}

// entry is an object of a story. Times are in nanoseconds since 1970; 0 means unset.
type entry struct {
	Ref

	at           int // its place in the story
	owners       []Owner
	in           ownership.UID
	marked, gone int64
	due          int64 // in seconds since 1970
	kept         bool
	protected    bool // why it is kept
	keptBy, lost []Ref
	finalizers   []string
	phase        ownership.Phase
	bytes        int // of its texts, as they are counted
	last         int64
	change       uint64 // of the Book, when the entry changed last
}

// isOver reports whether the object waits neither now nor later.
func (e *entry) isOver() bool { return e.gone != 0 || e.kept }

// NewBook returns a Book without stories.
func NewBook() *Book {
	return &Book{
		limits:  bounds(),
		stories: map[ownership.UID]*story{}, byKey: map[string]*story{},
		members: map[ownership.UID]member{}, beyond: map[uint64]*story{}, seed: maphash.MakeSeed(),
		homes: map[string]*entry{}, requests: map[ownership.UID]Request{}, guards: map[ownership.UID]guard{},
		kinds: map[ownership.Kind]string{},
	}
}

// Requested records a request to delete an object. The story begins when the object is marked or gone.
func (b *Book) Requested(r Request) {
	r.Key, r.Policy = ownership.Excerpt(r.Key, mostText), ownership.Excerpt(r.Policy, mostText)
	r.By = By{User: ownership.Excerpt(r.By.User, mostText), Agent: ownership.Excerpt(r.By.Agent, mostText)}
	b.mu.Lock()
	defer b.mu.Unlock()
	if m, known := b.member(r.UID); known && (m.entry == nil || !m.entry.kept) {
		return // its story has begun
	}
	if _, before := b.requests[r.UID]; !before {
		b.asked = append(b.asked, r.UID)
	}
	b.requests[r.UID] = r
	for len(b.asked) > mostRequests {
		delete(b.requests, b.asked[0])
		b.asked = b.asked[1:]
	}
}

// Seen records the observation of an object. An object that is not being deleted matters only if it is
// protected. home is the UID of its namespace, empty if it is uncertain.
func (b *Book) Seen(o *ownership.Object, home ownership.UID, now time.Time) {
	if o.Phase == ownership.Active {
		b.protect(o, home, now)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unprotectLocked(o.UID)
	m := b.memberOf(o, home, now)
	if e := m.entry; e != nil && e.gone == 0 {
		isNew, before := e.marked == 0, e.phase
		if isNew {
			e.marked = now.UnixNano()
			m.story.waiting++
		}
		if isNew || e.due != o.Due || e.phase != o.Phase || !slices.Equal(e.finalizers, o.Finalizers) {
			e.due, e.phase, e.finalizers = o.Due, o.Phase, o.Finalizers
			b.count(e)
			b.touch(m, now)
		}
		if isNew {
			b.gather(m, o, now)
		}
		if isNew || e.phase != before {
			b.meetLocked(e, now)
		}
	}
}

// Gone records that an object, in its last observed state, is gone. home is as in Seen.
func (b *Book) Gone(o *ownership.Object, home ownership.UID, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unprotectLocked(o.UID)
	m := b.memberOf(o, home, now)
	s := m.story
	switch e := m.entry; {
	case e == nil: // it is counted only
	case e.gone != 0:
		return
	default:
		if e.marked != 0 {
			s.waiting--
		}
		e.gone, e.finalizers = now.UnixNano(), nil
		b.count(e)
	}
	s.gone++
	s.countGone(now)
	b.touch(m, now)
}

// Listed records that all objects of a kind were listed: marked objects that are not in the list are gone.
func (b *Book) Listed(kind ownership.Kind, isThere func(ownership.UID) bool, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for uid, g := range b.guards {
		if g.Kind == nameOf(kind) && !isThere(uid) {
			b.unprotectLocked(uid)
		}
	}
	for _, s := range b.order {
		if s.waiting == 0 {
			continue
		}
		for _, e := range s.entries {
			if e.marked == 0 || e.gone != 0 || e.Kind != nameOf(kind) || isThere(e.UID) {
				continue
			}
			e.gone, e.finalizers = now.UnixNano(), nil
			b.count(e)
			s.waiting--
			s.gone++
			s.countGone(now)
			b.touch(member{s, e}, now)
		}
	}
}

// Stayed records that an object stays although an owner is deleted: lost are the owners that it had, and
// keptBy the remaining owners, if any. It belongs to the story of the lost owner.
func (b *Book) Stayed(object Ref, keptBy, lost []Ref, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, owner := range lost {
		of, known := b.member(owner.UID)
		if !known {
			continue
		}
		m, known := b.member(object.UID)
		switch {
		case known && (m.story != of.story || m.entry == nil || !m.entry.kept):
			return // it is being deleted itself, or is in another story
		case !known:
			e := &entry{Ref: object, kept: true}
			for _, o := range slices.Concat(lost, keptBy) {
				e.owners = append(e.owners, Owner{UID: o.UID})
			}
			m = b.add(of.story, e)
			of.story.kept++
		}
		if m.entry != nil {
			m.entry.keptBy, m.entry.lost = keptBy, append(m.entry.lost, lost...)
			m.entry.lost = m.entry.lost[max(0, len(m.entry.lost)-mostOwners):]
			b.count(m.entry)
		}
		b.touch(m, now)
		return
	}
}

// memberOf returns the story of an object that is marked or gone, and begins a story if it has none.
func (b *Book) memberOf(o *ownership.Object, home ownership.UID, now time.Time) member {
	before, known := b.member(o.UID)
	if before.entry != nil && before.entry.NamespaceUID == "" && home != "" {
		before.entry.NamespaceUID = home // it is certain now
		b.count(before.entry)
	}
	if known && (before.entry == nil || !before.entry.kept) {
		return before
	}
	e := &entry{Ref: Ref{Kind: b.kindOf(o.Kind), Namespace: o.Namespace, NamespaceUID: home, Name: o.Name, UID: o.UID}}
	for i := range o.Owners[:min(len(o.Owners), mostOwners)] {
		uid := o.Owners[i].UID
		if m := b.members[uid]; m.entry != nil {
			uid = m.entry.UID // kept already
		}
		e.owners = append(e.owners, Owner{UID: uid, Blocking: o.Owners[i].Blocking()})
	}
	s := b.storyOf(o, e, now)
	_, isAsked := b.requests[o.UID]
	switch {
	case known && (s == before.story || !isAsked && !before.story.isDone(now)):
		before.entry.kept, before.entry.protected = false, false // it is deleted now, too
		before.story.kept--
		return before
	case s == nil:
		return b.begin(e, o, now)
	}
	delete(b.requests, o.UID)
	return b.add(s, e)
}

// kindOf returns the name of a kind; each name is stored once.
func (b *Book) kindOf(k ownership.Kind) string {
	name, known := b.kinds[k]
	if !known {
		name = nameOf(k)
		b.kinds[k] = name
	}
	return name
}

// storyOf returns the story that an object belongs to; nil if it begins one.
func (b *Book) storyOf(o *ownership.Object, e *entry, now time.Time) *story {
	var found *story
	for i := range o.Owners {
		m, known := b.member(o.Owners[i].UID)
		isGoing := known && (m.entry == nil || m.entry.marked != 0 || m.entry.gone != 0)
		if isGoing && (found == nil || m.story.last.After(found.last)) {
			found = m.story
		}
	}
	if found != nil {
		return found
	}
	_, isAsked := b.requests[o.UID] // then it may be in another namespace, which has the name now
	for _, key := range []string{namespaceKey(o.Namespace), definitionKey(resourceOf(o.Kind))} {
		home := b.homes[key]
		if home == nil || home.kept || home.gone != 0 && (isAsked || now.UnixNano()-home.gone > int64(lag)) {
			continue
		}
		if home.Kind == "Namespace" && e.NamespaceUID != "" && e.NamespaceUID != home.UID {
			continue // it was in another one of that name
		}
		e.in = home.UID
		return b.members[home.UID].story
	}
	return nil
}

// begin begins a story, or adds a root to the story of the same request.
func (b *Book) begin(e *entry, o *ownership.Object, now time.Time) member {
	r, isAsked := b.requests[o.UID]
	delete(b.requests, o.UID)
	// The client may choose the key: requests of other users with the same key do not join the story.
	if s := b.byKey[r.Key]; isAsked && r.Key != "" && s != nil && s.by.User == r.By.User {
		m := b.add(s, e)
		if m.entry != nil {
			s.addRoot(e)
		}
		return m
	}
	s := &story{began: now, last: now, policy: r.Policy, key: r.Key}
	if isAsked {
		s.by = &r.By
		if r.Key != "" {
			b.byKey[r.Key] = s
		}
	}
	if s.policy == "" {
		s.policy = map[ownership.Phase]string{ownership.Foreground: "Foreground", ownership.Orphaning: "Orphan"}[o.Phase]
	}
	if s.policy == "" {
		s.policy = "Background"
	}
	b.stories[o.UID] = s
	b.order = append(b.order, s)
	b.singles++
	s.addRoot(e)
	m := b.add(s, e)
	b.forget(now)
	return m
}

// resourceOf returns the resource of a kind, as in the name of its CustomResourceDefinition. It is a guess:
// with an irregular plural, the instances become stories of their own.
func resourceOf(k ownership.Kind) string {
	if k.Group == "" {
		return ""
	}
	plural, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Group: k.Group, Kind: k.Kind})
	return plural.GroupResource().String()
}

func namespaceKey(name string) string      { return "namespace " + name }
func definitionKey(resource string) string { return "definition " + resource }

// touch records a change.
func (b *Book) touch(m member, now time.Time) {
	b.changes++
	s := m.story
	s.change, s.last = b.changes, now
	if m.entry != nil {
		m.entry.change, m.entry.last = b.changes, now.UnixNano()
		s.log = append(s.log, int32(m.entry.at))
	}
	if len(s.log) > 4*len(s.entries)+64 {
		s.base += len(s.log)
		s.log = s.log[:0]
	}
	if b.wake != nil {
		close(b.wake)
		b.wake = nil
	}
}

// gather merges the stories of objects in a namespace that is being deleted into its story: the watches of
// its contents may have been faster than the watch of namespaces. A deletion that a user requested stays a
// separate story.
func (b *Book) gather(m member, o *ownership.Object, now time.Time) {
	if o.Kind != (ownership.Kind{Kind: "Namespace"}) {
		return
	}
	for i := len(b.order) - 1; i >= 0 && now.Sub(b.order[i].began) < lag; i-- {
		from := b.order[i]
		root := from.roots[0]
		isElsewhere := root.Namespace != o.Name || root.NamespaceUID != "" && root.NamespaceUID != o.UID
		if from == m.story || from.by != nil || isElsewhere {
			continue
		}
		b.drop(i)
		for _, e := range from.entries {
			if e.in == "" && e == from.roots[0] {
				e.in = o.UID
			}
			to := b.add(m.story, e)
			b.touch(to, now)
		}
		m.story.advance(now)
		from.advance(now)
		for n := range from.goneAt {
			m.story.goneAt[n] += from.goneAt[n]
		}
		m.story.gone, m.story.waiting, m.story.kept = m.story.gone+from.gone, m.story.waiting+from.waiting, m.story.kept+from.kept
	}
}

// isDone reports whether the story has ended.
func (s *story) isDone(now time.Time) bool {
	return s.waiting == 0 && now.Sub(s.last) >= settle && !slices.ContainsFunc(s.roots, func(e *entry) bool { return !e.isOver() })
}

// countGone counts an object that is gone, for the rate.
func (s *story) countGone(now time.Time) {
	s.advance(now)
	s.goneAt[s.second%rateWindow]++
}

// advance drops counts that are older than the window.
func (s *story) advance(now time.Time) {
	second := now.Unix()
	for n := max(s.second+1, second-rateWindow+1); n <= second; n++ {
		s.goneAt[n%rateWindow] = 0
	}
	s.second = max(s.second, second)
}

func refOf(o *ownership.Object, home ownership.UID) Ref {
	return Ref{Kind: nameOf(o.Kind), Namespace: o.Namespace, NamespaceUID: home, Name: o.Name, UID: o.UID}
}

// nameOf returns the name of a kind: "ReplicaSet.apps".
func nameOf(k ownership.Kind) string { return strings.TrimSuffix(k.String(), ".") }
