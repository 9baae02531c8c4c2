package collector

import (
	"context"
	"math"
	"slices"
	"sync"

	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/collect/queue"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// A kind whose requests hang must not take what other kinds need (L5). So a decision takes a place of each kind that it
// sends a request to, and has it until it ends. There are any number of places while the answers come within pace.Patience,
// and few otherwise. An object that finds no place is queued again when there is one for it; tenants take turns. A decision
// that waits longer for an answer, or is expected to, gives back what it has of the common means: another worker is started
// in its place (crew), and its part of wholeAtOnce is free. Its turn at the Limiter ends after pace.Patience.

// The places of a kind whose last answer, or the request under way, has taken long, and of one whose last request had no
// answer. Decisions that hold whole lists have places of their own: wholeAtOnce, and one.
const (
	slowPlaces   = 16
	silentPlaces = 2
)

// lateAtOnce bounds the places of all these kinds together, but each has one. Their requests are at most twice as many: that is
// less than the turns that the Limiter lends.
const lateAtOnce = 96

// roundsOfTurns is how many requests for such a kind a decision may send for each place of its share, before it lets others
// have its own.
const roundsOfTurns = 4

// invitedAtOnce is the number of objects of a kind with quick answers that are queued again when one decision ends.
const invitedAtOnce = 4

// answering is how a kind has answered last.
type answering uint8

const (
	quickly answering = iota
	slowly
	notAtAll
)

// group is a kind, and whether the decisions hold whole lists.
type group struct {
	kind    ownership.Kind
	isWhole bool
}

// places has the places of all kinds. Only turn blocks. It is safe for concurrent use.
type places struct {
	clock  clock.PassiveClock
	tenant func(ownership.UID) string

	mu      sync.Mutex
	kinds   map[group]*kindPlaces     // guarded by mu, and so is all below; those that answer quickly and have no places taken are left out
	slow    int                       // those that do not answer quickly, and have places taken
	invited map[ownership.UID][]group // the places that are kept for objects in the queue
	waits   map[ownership.UID]*wait   // of the objects that wait
	waitsOf map[string]int            // how many objects of a tenant wait; no zeros
	passes  map[ownership.UID]*pass   // of the owners that come back
}

// kindPlaces are the places of one kind.
type kindPlaces struct {
	answers answering
	late    int                    // requests that wait for longer than pace.Patience
	taken   int                    // the number of places that decisions have, or that are kept for objects in the queue
	sent    int                    // requests under way
	turns   int                    // see places.turn
	ended   *sync.Cond             // signaled when a turn or a request ends
	waiting queue.Turns[waiting]   // the objects that wait for a place; none if no place is taken
	isIn    map[ownership.UID]bool // the same
}

func newPlaces(c clock.PassiveClock, tenant func(ownership.UID) string) *places {
	return &places{
		clock: c, tenant: tenant, kinds: make(map[group]*kindPlaces), invited: make(map[ownership.UID][]group),
		waits: make(map[ownership.UID]*wait), waitsOf: make(map[string]int), passes: make(map[ownership.UID]*pass),
	}
}

func (k *kindPlaces) isQuick() bool { return k.answers == quickly && k.late == 0 }

// limitLocked returns how many places there are.
func (p *places) limitLocked(of group, k *kindPlaces) int {
	most := slowPlaces
	switch {
	case k.isQuick():
		return math.MaxInt
	case k.answers == notAtAll && of.isWhole:
		most = 1
	case k.answers == notAtAll:
		most = silentPlaces
	case of.isWhole:
		most = wholeAtOnce
	}
	all := p.slow
	if k.taken == 0 {
		all++
	}
	return max(1, min(most, lateAtOnce/all))
}

// updateLocked changes how a kind answers, or how many places are taken.
func (p *places) updateLocked(k *kindPlaces, change func()) {
	isSlow := func() bool { return k.taken > 0 && !k.isQuick() }
	was := isSlow()
	change()
	switch is := isSlow(); {
	case is && !was:
		p.slow++
	case was && !is:
		p.slow--
	}
}

// visit is one decision about an object, with its places. The lock of places guards it.
type visit struct {
	uid   ownership.UID
	held  []hold
	wants []group // the places that it has not found, each once
	pass  *pass   // nil if neither this decision nor the one before it has begun a pass
	// detaches means that this decision has come to the dependents of its object.
	detaches bool
	// lend give back what the decision has of the common means.
	lend []func()
}

// hold is a place that a visit has.
type hold struct {
	group

	sent  int // requests under way
	turns int // under way
	begun int // requests
}

type (
	visitKey struct{}
	wholeKey struct{}
)

// holdingWhole returns a context for the requests of a decision that holds a whole list.
func holdingWhole(ctx context.Context) context.Context {
	return context.WithValue(ctx, wholeKey{}, true)
}

func groupOf(ctx context.Context, kind ownership.Kind) group {
	return group{kind, ctx.Value(wholeKey{}) != nil}
}

// enter begins a decision. It gets the places that are kept for the object.
func (p *places) enter(ctx context.Context, uid ownership.UID, lend func()) (context.Context, *visit) {
	v := &visit{uid: uid, lend: []func(){lend}}
	p.mu.Lock()
	defer p.mu.Unlock()
	if v.pass = p.passes[uid]; v.pass != nil {
		v.pass.next()
	}
	delete(p.passes, uid)
	for _, g := range p.invited[uid] {
		v.held = append(v.held, hold{group: g})
	}
	delete(p.invited, uid)
	return context.WithValue(ctx, visitKey{}, v), v
}

// lend has give called when a request of the decision waits for long, or is expected to.
func (p *places) lend(ctx context.Context, give func()) {
	if v, ok := ctx.Value(visitKey{}).(*visit); ok {
		p.mu.Lock()
		defer p.mu.Unlock()
		v.lend = append(v.lend, give)
	}
}

// want notes that the decision has not found a place.
func (v *visit) want(g group) {
	if !slices.Contains(v.wants, g) {
		v.wants = append(v.wants, g)
	}
}

// giveBack gives back what the visit has of the common means.
func (v *visit) giveBack() {
	for _, give := range v.lend {
		give()
	}
	v.lend = nil
}

// passOf returns the pass that a decision continues, or begins.
func (p *places) passOf(ctx context.Context) *pass {
	v, ok := ctx.Value(visitKey{}).(*visit)
	if !ok {
		return newPass()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if v.pass == nil {
		v.pass = newPass()
	}
	v.detaches = true
	return v.pass
}

// kindLocked returns the places of a kind.
func (p *places) kindLocked(g group) *kindPlaces {
	k := p.kinds[g]
	if k == nil {
		k = &kindPlaces{isIn: make(map[ownership.UID]bool), ended: sync.NewCond(&p.mu)}
		p.kinds[g] = k
	}
	return k
}

// holdLocked returns the index of the place that a decision has of a kind, or takes one. The index is -1 if no place is free.
func (p *places) holdLocked(v *visit, g group) (*kindPlaces, int) {
	k := p.kindLocked(g)
	i := slices.IndexFunc(v.held, func(h hold) bool { return h.group == g })
	switch {
	case i >= 0:
		return k, i
	case k.taken < p.limitLocked(g, k):
		p.updateLocked(k, func() { k.taken++ })
		v.held = append(v.held, hold{group: g})
		return k, len(v.held) - 1
	}
	v.want(g)
	return k, -1
}

// turn waits until a decision with many requests for a kind may send one more: all such decisions together send as many as
// there are places, less those that others need, and each may send one. The caller calls end after the request. The error is a
// noPlaceError if the decision has no place at all, or has had it for long while others wait: the object comes back.
func (p *places) turn(ctx context.Context, kind ownership.Kind) (end func(), err error) {
	v, ok := ctx.Value(visitKey{}).(*visit)
	if !ok {
		return func() {}, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	g := groupOf(ctx, kind)
	k, i := p.holdLocked(v, g)
	if i < 0 {
		return nil, newNoPlaceError(kind, allAreTaken)
	}
	for v.held[i].turns > 0 && max(k.turns, k.sent) >= p.limitLocked(g, k) {
		k.ended.Wait()
	}
	if !k.isQuick() && k.waiting.Len() > 0 && v.held[i].begun >= max(1, roundsOfTurns*p.limitLocked(g, k)/k.taken) {
		v.want(g)
		return nil, newNoPlaceError(kind, turnIsOver)
	}
	k.turns++
	v.held[i].turns++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		k.turns--
		v.held[i].turns--
		k.ended.Broadcast()
	}, nil
}

// leave ends a decision, and returns the objects that have a place now. An object whose decision lacked places waits for them
// if the decision is Settled, or its pass goes on. Otherwise a back-off brings the object back.
func (p *places) leave(v *visit, next Next) (invited []ownership.UID) {
	goesOn := v.pass != nil && v.pass.goesOn()
	waits := len(v.wants) > 0 && (next == Settled || goesOn)
	var tenant string
	if waits {
		tenant = p.tenant(v.uid) // takes the lock of the graph
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range v.held {
		k := p.kinds[h.group]
		p.updateLocked(k, func() { k.taken-- })
	}
	if waits {
		for _, g := range v.wants {
			p.pushLocked(p.kindLocked(g), waiting{v.uid, p.clock.Now()}, tenant)
		}
	}
	if goesOn || v.pass != nil && !v.detaches && (waits || next != Settled) {
		p.passes[v.uid] = v.pass
	}
	for _, h := range v.held {
		invited = append(invited, p.inviteLocked(h.group)...)
	}
	for _, g := range v.wants { // the places may be free by now
		if !slices.ContainsFunc(v.held, func(h hold) bool { return h.group == g }) {
			invited = append(invited, p.inviteLocked(g)...)
		}
	}
	return invited
}

// forget forgets who waits. No decision is under way.
func (p *places) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.kinds)
	clear(p.invited)
	clear(p.waits)
	clear(p.waitsOf)
	clear(p.passes)
	p.slow = 0
}
