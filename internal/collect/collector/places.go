package collector

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/collect/pace"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
)

// A kind whose requests hang must not take what other kinds need (L5). So a decision takes a place of each kind that it
// sends a request to, and has it until it ends. There are any number of places while the answers come within pace.Patience,
// and few otherwise. An object that finds no place is queued again when there is one for it. A decision that waits longer
// for an answer, or is expected to, gives back what it has of the common means: another worker is started in its place
// (crew), and its part of wholeAtOnce is free. Its turn at the Limiter ends after pace.Patience.

// The places of a kind whose last answer, or the request under way, has taken long, and of one whose last request had no
// answer. Decisions that hold whole lists have places of their own: wholeAtOnce, and one.
const (
	slowPlaces   = 16
	silentPlaces = 2
)

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

// places has the places of all kinds. It never blocks, and is safe for concurrent use.
type places struct {
	clock clock.PassiveClock

	mu      sync.Mutex
	kinds   map[group]*kindPlaces     // guarded by mu; those that answer quickly and have no places taken are left out
	invited map[ownership.UID][]group // guarded by mu; the places that are kept for objects in the queue
}

// kindPlaces are the places of one kind.
type kindPlaces struct {
	answers answering
	late    int             // requests that wait for longer than pace.Patience
	taken   int             // places, also those that are kept for objects in the queue
	waiting []ownership.UID // the objects that wait for a place, in their order; none if no place is taken
	isIn    map[ownership.UID]bool
}

func newPlaces(c clock.PassiveClock) *places {
	return &places{clock: c, kinds: make(map[group]*kindPlaces), invited: make(map[ownership.UID][]group)}
}

// limit returns how many places there are.
func (k *kindPlaces) limit(of group) int {
	switch {
	case k.answers == notAtAll && of.isWhole:
		return 1
	case k.answers == notAtAll:
		return silentPlaces
	case k.answers == quickly && k.late == 0:
		return math.MaxInt
	case of.isWhole:
		return wholeAtOnce
	default:
		return slowPlaces
	}
}

// visit is one decision about an object, with its places. The lock of places guards it.
type visit struct {
	uid     ownership.UID
	isWhole bool // it holds a whole list
	held    []hold
	// lend give back what the decision has of the common means.
	lend []func()
}

// hold is a place that a visit has, with the number of its requests under way.
type hold struct {
	group

	underWay int
}

type visitKey struct{}

// enter begins a decision. It gets the places that are kept for the object.
func (p *places) enter(ctx context.Context, uid ownership.UID, lend func()) (context.Context, *visit) {
	v := &visit{uid: uid, lend: []func(){lend}}
	p.mu.Lock()
	defer p.mu.Unlock()
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

// holdWhole notes that the decision holds a whole list, until release is called.
func (p *places) holdWhole(ctx context.Context) (release func()) {
	set := func(isWhole bool) {
		if v, ok := ctx.Value(visitKey{}).(*visit); ok {
			p.mu.Lock()
			defer p.mu.Unlock()
			v.isWhole = isWhole
		}
	}
	set(true)
	return func() { set(false) }
}

// leave ends a decision, and returns the objects that have a place now.
func (p *places) leave(v *visit) (invited []ownership.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range v.held {
		k := p.kinds[h.group]
		k.taken--
		n := k.limit(h.group) - k.taken
		if n > slowPlaces {
			n = invitedAtOnce
		}
		n = max(0, min(n, len(k.waiting)))
		for _, uid := range k.waiting[:n] {
			delete(k.isIn, uid)
			p.invited[uid] = append(p.invited[uid], h.group)
		}
		invited = append(invited, k.waiting[:n]...)
		k.waiting = slices.Clone(k.waiting[n:])
		k.taken += n
		if k.taken == 0 && k.answers == quickly {
			delete(p.kinds, h.group)
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
}

// describe returns how many objects wait, by kind.
func (p *places) describe() (waiting []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for g, k := range p.kinds {
		if len(k.waiting) > 0 {
			waiting = append(waiting, fmt.Sprintf("objects that wait for other requests for %s: %d", g.kind, len(k.waiting)))
		}
	}
	slices.Sort(waiting)
	return waiting
}

// request is a request under way.
type request struct {
	places *places
	visit  *visit
	group  group
	kind   *kindPlaces
	began  time.Time
	timer  clock.Timer // nil if the clock has none
	isLate bool        // guarded by the lock of places, and so is hasEnded

	hasEnded bool
}

// begin begins a request of a decision. It returns nil if there is no place: the object comes back.
func (p *places) begin(v *visit, kind ownership.Kind) *request {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := group{kind, v.isWhole}
	k := p.kinds[g]
	if k == nil {
		k = &kindPlaces{isIn: make(map[ownership.UID]bool)}
		p.kinds[g] = k
	}
	limit := k.limit(g)
	i := slices.IndexFunc(v.held, func(h hold) bool { return h.group == g })
	if i < 0 && k.taken >= limit || i >= 0 && v.held[i].underWay >= limit {
		if !k.isIn[v.uid] {
			k.isIn[v.uid] = true
			k.waiting = append(k.waiting, v.uid)
		}
		return nil
	}
	if i < 0 {
		i, v.held = len(v.held), append(v.held, hold{group: g})
		k.taken++
	}
	v.held[i].underWay++
	if k.late > 0 || k.answers != quickly {
		v.giveBack()
	}
	r := &request{places: p, visit: v, group: g, kind: k, began: p.clock.Now()}
	if c, ok := p.clock.(clock.WithDelayedExecution); ok {
		r.timer = c.AfterFunc(pace.Patience, r.overdue)
	}
	return r
}

// overdue notes that the answer takes long.
func (r *request) overdue() {
	r.places.mu.Lock()
	defer r.places.mu.Unlock()
	if r.hasEnded {
		return
	}
	r.isLate = true
	r.kind.late++
	r.visit.giveBack()
}

// giveBack gives back what the visit has of the common means.
func (v *visit) giveBack() {
	for _, give := range v.lend {
		give()
	}
	v.lend = nil
}

// end ends the request, whose error is err.
func (r *request) end(err error) {
	r.places.mu.Lock()
	defer r.places.mu.Unlock()
	if r.timer != nil {
		r.timer.Stop()
	}
	r.hasEnded = true
	if r.isLate {
		r.kind.late--
	}
	i := slices.IndexFunc(r.visit.held, func(h hold) bool { return h.group == r.group })
	r.visit.held[i].underWay--
	switch {
	case errors.Is(err, context.Canceled), pace.IsNotSent(err): // this says nothing about the kind
	case isUnanswered(err):
		r.kind.answers = notAtAll
	case r.places.clock.Since(r.began) > pace.Patience:
		r.kind.answers = slowly
	default:
		r.kind.answers = quickly
	}
}

func isUnanswered(err error) bool {
	timed, ok := errors.AsType[net.Error](err)
	return errors.Is(err, context.DeadlineExceeded) || pace.IsUnreachable(err) || ok && timed.Timeout()
}

// noPlaceError means that a request was not sent, because a kind has no place. The object comes back when it has one.
type noPlaceError struct{ kind ownership.Kind }

func (e noPlaceError) Error() string {
	return fmt.Sprintf("not sent: other requests for %s are waiting for an answer", e.kind)
}

// hasNoPlace reports whether an error means that a request was not sent, because its kind has no place.
func hasNoPlace(err error) bool {
	_, is := errors.AsType[noPlaceError](err)
	return is
}

// placedAPI sends the requests of decisions that have a place, and all that belong to no decision.
type placedAPI struct {
	client.Interface

	places *places
}

func placed[T any](ctx context.Context, p *places, kind ownership.Kind, send func() (T, error)) (answer T, err error) {
	v, ok := ctx.Value(visitKey{}).(*visit)
	if !ok {
		return send()
	}
	r := p.begin(v, kind)
	if r == nil {
		return answer, noPlaceError{kind}
	}
	defer func() { r.end(err) }()
	return send()
}

// Get implements client.Interface.
func (a placedAPI) Get(ctx context.Context, ref client.Ref) (ownership.Object, error) {
	return placed(ctx, a.places, ref.Kind, func() (ownership.Object, error) { return a.Interface.Get(ctx, ref) })
}

// Delete implements client.Interface.
func (a placedAPI) Delete(ctx context.Context, observed ownership.Object, propagation verdict.Propagation) error {
	_, err := placed(ctx, a.places, observed.Kind, func() (struct{}, error) {
		return struct{}{}, a.Interface.Delete(ctx, observed, propagation)
	})
	return err
}

// PatchOwners implements client.Interface.
func (a placedAPI) PatchOwners(ctx context.Context, observed ownership.Object, owners []ownership.Reference) (ownership.Object, error) {
	return placed(ctx, a.places, observed.Kind, func() (ownership.Object, error) { return a.Interface.PatchOwners(ctx, observed, owners) })
}

// PatchFinalizers implements client.Interface.
func (a placedAPI) PatchFinalizers(ctx context.Context, observed ownership.Object, finalizers []string) (ownership.Object, error) {
	return placed(ctx, a.places, observed.Kind, func() (ownership.Object, error) { return a.Interface.PatchFinalizers(ctx, observed, finalizers) })
}

// List implements client.Interface.
func (a placedAPI) List(ctx context.Context, kind ownership.Kind, namespace string, limit int64, after string) (client.Page, error) {
	return placed(ctx, a.places, kind, func() (client.Page, error) { return a.Interface.List(ctx, kind, namespace, limit, after) })
}

// Created implements client.Interface.
func (a placedAPI) Created(ctx context.Context, observed ownership.Object) (time.Time, error) {
	return placed(ctx, a.places, observed.Kind, func() (time.Time, error) { return a.Interface.Created(ctx, observed) })
}
