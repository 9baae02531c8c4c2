package collector

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/ownership"
)

// barrier proves, before a finalizer of the collector's is removed, that no
// dependent was missed (R15). The graph knows what the watches have shown, and a
// watch lags behind, or does not work at all. So:
//
//  1. An owner about which Release was decided gets in line (pass), in the lane
//     of its namespace; cluster-scoped owners have a lane of their own.
//  2. A round takes the lines of all lanes for which no list is under way, and
//     lists every kind that could hold a dependent of theirs (round.go). The
//     lists begin after the owner got in line, and so after its deletion was
//     observed; they show the newest state. Who comes later waits for the next.
//     Where the server tells which kinds were written to, those are not listed whose
//     watch has come there (shown.go).
//  3. An object in a list that refers to the owner goes to the graph, if that
//     knows it (state.confirm). If not, its watch lags, or the object is gone by
//     now, and the owner is held: the watch or the next list will tell which.
//  4. A kind that cannot be listed holds the owner too. What was proven of the
//     other kinds stays proven.
//  5. Proven or held, the owner is put back in the queue and decided about anew:
//     by then the graph may have dependents to detach or to wait for. The proof
//     says that the graph may be believed, and nothing else.
//
// So nothing is ever taken into the graph that only a list has shown: the list
// might be older than a DELETED event that nobody would repeat.
//
// Before run is called a round is made by whoever calls pass, within the call.
type barrier struct {
	off   bool // everybody passes
	api   API
	state *state
	queue Queue
	clock clock.WithTicker
	stats *counters
	tell  func(ctx context.Context, owner ownership.Object, message string)
	width int           // lists under way at the same time
	slots chan struct{} // holds a token for each

	mu        sync.Mutex
	kinds     map[ownership.Kind]chan struct{} // guarded by mu, and so is all below; a token for each list of a kind
	waits     map[ownership.UID]*wait
	lanes     map[string]*lane // by namespace; "" is that of cluster-scoped owners
	lanesMade int
	hints     chan struct{} // holds a token when somebody is in line; nil until run is about to be called
	trust     trust
	news      news
}

// news is what has happened that may end a hold. Each piece has a number, so that a
// round can tell what it has missed.
type news struct {
	newest int
	kinds  map[ownership.Kind]int // that a kind was listed for the feed
	served int                    // that what is served has changed
}

// concern tells whether there is news since that number about one of the kinds.
func (n *news) concern(kinds []ownership.Kind, since int) bool {
	return n.served > since || slices.ContainsFunc(kinds, func(kind ownership.Kind) bool { return n.kinds[kind] > since })
}

// lane is the line of the owners of one namespace.
type lane struct {
	line   []*wait
	busy   bool // a round is reading for this namespace
	number int  // lower for those that have been in use for longer
}

// stage is where an owner stands at the barrier.
type stage uint8

const (
	// idle owners get in line when they are reconsidered.
	idle stage = iota
	// inLine owners wait for a round, or are in one.
	inLine
	// proven owners may lose their finalizer.
	proven
	// held owners may not, and have to be told so.
	held
)

// wait is one owner at the barrier.
type wait struct {
	owner     ownership.Object // as it was when it came
	finalizer string
	since     time.Time

	stage    stage
	attempts int // rounds that did not prove it

	// What the last round has found; nothing at first.
	read  []ownership.Kind // the kinds that have to be read
	left  []ownership.Kind // those of them that prove nothing so far
	holds []Hold           // the same in words, and what else holds the owner
	delay time.Duration    // what an answer said how long to stay away
}

// Hold is why a finalizer is kept.
type Hold struct {
	// What names the kind that proves nothing, or the group version that cannot be discovered.
	What string `json:"what"`
	// Why says what is the matter with it.
	Why string `json:"why"`
}

func (h Hold) String() string { return h.What + ": " + h.Why }

func newBarrier(c *Collector, config Config) *barrier {
	return &barrier{
		off: config.Barrier == Off,
		api: c.api, state: c.state, queue: c.queue, clock: config.Clock, stats: c.stats, tell: c.tellBlocked,
		width: config.Lists,
		slots: make(chan struct{}, config.Lists),
		kinds: make(map[ownership.Kind]chan struct{}),
		waits: make(map[ownership.UID]*wait),
		lanes: make(map[string]*lane),
		news:  news{kinds: make(map[ownership.Kind]int)},
	}
}

// pass tells whether a finalizer of an owner may be removed. If not, the owner
// comes back: through the queue when a round has been made for it, or, when the
// error says what holds it, after its back-off.
func (b *barrier) pass(ctx context.Context, owner ownership.Object, finalizer string) (bool, error) {
	if b.off {
		return true, nil
	}
	b.mu.Lock()
	w := b.waits[owner.UID]
	if w == nil || w.finalizer != finalizer {
		w = &wait{owner: owner, finalizer: finalizer, since: b.clock.Now()}
		b.waits[owner.UID] = w
	}
	switch w.stage {
	case proven:
		b.mu.Unlock()
		return true, nil
	case held:
		w.stage = idle
		err := heldError{finalizer: finalizer, holds: w.holds, after: max(w.delay, heldBackoff(w.attempts, b.clock.Now()))}
		b.mu.Unlock()
		return false, err
	case idle:
		w.stage = inLine
		l := b.laneLocked(owner.Namespace)
		l.line = append(l.line, w)
	case inLine:
	}
	b.mu.Unlock()
	b.begin(ctx)
	return false, nil
}

func (b *barrier) laneLocked(namespace string) *lane {
	if b.lanes[namespace] == nil {
		b.lanesMade++
		b.lanes[namespace] = &lane{number: b.lanesMade}
	}
	return b.lanes[namespace]
}

// slotsOf are the slots for lists of one kind.
func (b *barrier) slotsOf(kind ownership.Kind) chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.kinds[kind] == nil {
		b.kinds[kind] = make(chan struct{}, slotsPerKind)
	}
	return b.kinds[kind]
}

// begin has a round made for those in line.
func (b *barrier) begin(ctx context.Context) {
	if b.isOpen() {
		b.hint()
		return
	}
	for r := b.next(); r != nil; r = b.next() {
		r.run(ctx)
	}
}

// hint tells run that somebody is in line.
func (b *barrier) hint() {
	select {
	case b.hints <- struct{}{}:
	default: // there is a hint already
	}
}

// forget takes an owner off the barrier: it is gone, or released, or something
// else was decided about it. The next time it needs a new proof, from then.
func (b *barrier) forget(uid ownership.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.waits, uid)
}

// wake brings back the owners that a kind holds: it was listed for the feed just now.
// Those of a round that has read it before come back when that ends (conclude).
func (b *barrier) wake(kind ownership.Kind) {
	b.mu.Lock()
	b.trust.listed(kind)
	b.news.newest++
	b.news.kinds[kind] = b.news.newest
	b.mu.Unlock()
	b.bringBack(func(w *wait) bool { return slices.Contains(w.left, kind) })
}

// rescope brings back all owners that are held: what is served has changed.
func (b *barrier) rescope(kind ownership.Kind, scope ownership.Scope) {
	b.mu.Lock()
	b.news.newest++
	b.news.served = b.news.newest
	if scope == ownership.ScopeUnknown {
		delete(b.kinds, kind)
		delete(b.news.kinds, kind)
	}
	b.mu.Unlock()
	b.bringBack(func(*wait) bool { return true })
}

func (b *barrier) bringBack(which func(w *wait) bool) {
	b.mu.Lock()
	var uids []ownership.UID
	for uid, w := range b.waits {
		if (w.stage == held || w.stage == idle) && which(w) {
			w.stage = idle
			uids = append(uids, uid)
		}
	}
	b.mu.Unlock()
	slices.Sort(uids)
	b.queue.Add(uids...)
}

// doubt takes back all proofs: the server is not the one that gave them (R4).
func (b *barrier) doubt() {
	b.mu.Lock()
	var uids []ownership.UID
	for uid := range b.waits {
		uids = append(uids, uid)
	}
	clear(b.waits)
	b.mu.Unlock()
	slices.Sort(uids)
	b.queue.Add(uids...)
}

// maxTurns bounds the lanes in one round, and so what it takes of memory.
const maxTurns = 500

// next takes the lines of the lanes that no round is reading for, those first that
// have been in use for longest. It returns nil when nobody is in line.
func (b *barrier) next() *round {
	b.mu.Lock()
	defer b.mu.Unlock()
	var ready []string
	for namespace, l := range b.lanes {
		if !l.busy && len(l.line) > 0 {
			ready = append(ready, namespace)
		}
	}
	if len(ready) == 0 {
		return nil
	}
	slices.SortFunc(ready, func(x, y string) int { return cmp.Compare(b.lanes[x].number, b.lanes[y].number) })
	r := &round{barrier: b}
	for _, namespace := range ready[:min(len(ready), maxTurns)] {
		l, t := b.lanes[namespace], &turn{namespace: namespace, began: b.news.newest}
		for _, w := range l.line {
			if b.waits[w.owner.UID] == w { // else it was forgotten
				t.members = append(t.members, w)
			}
		}
		b.lanesMade++
		l.line, l.busy, l.number = nil, true, b.lanesMade
		r.turns = append(r.turns, t)
	}
	if len(ready) > maxTurns && b.hints != nil {
		b.hint()
	}
	return r
}

// eventAfter is how many rounds an owner is held by before an Event says so. Most
// kinds that cannot be read can be read a moment later; this is after a second or so.
const eventAfter = 8

// conclude ends the turn of a lane: its members are proven or held, and decided
// about anew.
func (b *barrier) conclude(ctx context.Context, t *turn) {
	findings := make([]finding, len(t.members))
	for i, w := range t.members {
		findings[i] = t.judge(w, b)
	}
	b.mu.Lock()
	var uids []ownership.UID
	var events []func()
	for i, w := range t.members {
		if b.waits[w.owner.UID] != w {
			continue // forgotten meanwhile
		}
		uids = append(uids, w.owner.UID)
		w.read, w.left, w.holds, w.delay = t.scope, findings[i].left, findings[i].holds, findings[i].delay
		if len(w.holds) == 0 {
			w.stage = proven
			continue
		}
		w.stage = held
		if b.news.concern(w.left, t.began) {
			w.stage = idle // it came too late for this round: another one, at once
		}
		w.attempts++
		b.stats.holds.Add(1)
		if w.attempts == eventAfter {
			message := messageOf(w.finalizer, w.holds)
			events = append(events, func() { b.tell(ctx, w.owner, message) })
		}
	}
	l := b.lanes[t.namespace]
	l.busy = false
	more := len(l.line) > 0 && b.hints != nil // else the one who makes the rounds looks again
	if len(l.line) == 0 {
		delete(b.lanes, t.namespace)
	}
	b.mu.Unlock()

	b.queue.Add(uids...)
	if more {
		b.begin(ctx)
	}
	for _, event := range events {
		event()
	}
}

// heldError says why a finalizer is kept, and when to try again.
type heldError struct {
	finalizer string
	holds     []Hold
	after     time.Duration
}

func (e heldError) Error() string { return messageOf(e.finalizer, e.holds) }

// heldBackoff is how long an owner stays away that was held so many times. The
// queue's own back-off would end each time that the owner gets in line. It ends
// with a full minute, or whatever the back-off has come to, so that owners come
// back together and share a round.
func heldBackoff(attempts int, now time.Time) time.Duration {
	const shortest, longest, doublings = 5 * time.Millisecond, time.Minute, 14
	full := min(shortest<<min(attempts-1, doublings), longest)
	wait := now.Truncate(full).Add(full).Sub(now)
	if wait < full/2 {
		wait += full
	}
	return wait
}

// messageOf names what holds an owner, maxReported of it.
func messageOf(finalizer string, holds []Hold) string {
	var b strings.Builder
	fmt.Fprintf(&b, "finalizer %s is kept, because dependents may have been missed: ", finalizer)
	for i, h := range holds {
		if i == maxReported {
			fmt.Fprintf(&b, "; and %d more", len(holds)-i)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(h.String())
	}
	return b.String()
}
