package collector

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/collect/pace"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
)

// request is a request under way.
type request struct {
	places *places
	visit  *visit
	hold   int // the index of the place
	kind   *kindPlaces
	began  time.Time
	timer  clock.Timer // nil if the clock has none
	isLate bool        // guarded by the lock of places, and so is hasEnded

	hasEnded bool
}

// begin begins a request of a decision. It returns a noPlaceError if there is no place.
func (p *places) begin(v *visit, g group) (*request, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k, i := p.holdLocked(v, g)
	switch {
	case i < 0:
		return nil, newNoPlaceError(g.kind, allAreTaken)
	case v.held[i].sent == 0 || k.sent < p.limitLocked(g, k):
	case v.held[i].turns > 0: // others were faster, or the kind became slow after it had its turn
		return nil, newNoPlaceError(g.kind, turnIsTaken)
	default:
		v.want(g)
		return nil, newNoPlaceError(g.kind, allAreTaken)
	}
	k.sent++
	v.held[i].sent++
	v.held[i].begun++
	if !k.isQuick() {
		v.giveBack()
	}
	r := &request{places: p, visit: v, hold: i, kind: k, began: p.clock.Now()}
	if c, ok := p.clock.(clock.WithDelayedExecution); ok {
		r.timer = c.AfterFunc(pace.Patience, r.overdue)
	}
	return r, nil
}

// overdue notes that the answer takes long.
func (r *request) overdue() {
	r.places.mu.Lock()
	defer r.places.mu.Unlock()
	if r.hasEnded {
		return
	}
	r.isLate = true
	r.places.updateLocked(r.kind, func() { r.kind.late++ })
	r.visit.giveBack()
}

// end ends the request, whose error is err.
func (r *request) end(err error) {
	r.places.mu.Lock()
	defer r.places.mu.Unlock()
	if r.timer != nil {
		r.timer.Stop()
	}
	r.hasEnded = true
	r.kind.sent--
	r.visit.held[r.hold].sent--
	if r.visit.held[r.hold].turns == 0 { // otherwise, the end of the turn follows
		defer r.kind.ended.Broadcast()
	}
	r.places.updateLocked(r.kind, func() {
		if r.isLate {
			r.kind.late--
		}
		switch {
		case errors.Is(err, context.Canceled), pace.IsNotSent(err): // this says nothing about the kind
		case isUnanswered(err):
			r.kind.answers = notAtAll
		case r.places.clock.Since(r.began) > pace.Patience:
			r.kind.answers = slowly
		default:
			r.kind.answers = quickly
		}
	})
}

func isUnanswered(err error) bool {
	timed, ok := errors.AsType[net.Error](err)
	return errors.Is(err, context.DeadlineExceeded) || pace.IsUnreachable(err) || ok && timed.Timeout()
}

// noPlaceError means that a request was not sent, because a kind has no place.
type noPlaceError struct {
	kind ownership.Kind
	why  lack
}

// lack is why a decision cannot send a request for a kind.
type lack uint8

const (
	allAreTaken lack = iota // the object comes back when there is a place
	turnIsTaken             // the decision has a place, and may send the request in another turn
	turnIsOver              // the decision has had a place for long: the object comes back, and others have their turn
)

func (e noPlaceError) Error() string {
	return fmt.Sprintf("other requests for %s are waiting for an answer", e.kind)
}

func newNoPlaceError(kind ownership.Kind, why lack) error {
	return pace.NewNotSentError(noPlaceError{kind, why})
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
	r, err := p.begin(v, groupOf(ctx, kind))
	if err != nil {
		return answer, err
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
