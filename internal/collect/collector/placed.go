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

// begin begins a request of a decision. It returns nil if there is no place: the object comes back.
func (p *places) begin(v *visit, g group) *request {
	p.mu.Lock()
	defer p.mu.Unlock()
	k, i := p.holdLocked(v, g)
	if i >= 0 && v.held[i].sent > 0 && k.sent >= p.limitLocked(g, k) {
		p.awaitLocked(k, v) // it had its turn before the kind became slow
		i = -1
	}
	if i < 0 {
		return nil
	}
	k.sent++
	v.held[i].sent++
	if !k.isQuick() {
		v.giveBack()
	}
	r := &request{places: p, visit: v, hold: i, kind: k, began: p.clock.Now()}
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

// noPlaceError means that a request was not sent, because a kind has no place. The object comes back when it has one.
type noPlaceError struct {
	kind ownership.Kind
	// isOver means that the decision has to end.
	isOver bool
}

func (e noPlaceError) Error() string {
	return fmt.Sprintf("other requests for %s are waiting for an answer", e.kind)
}

func newNoPlaceError(kind ownership.Kind) error {
	return pace.NewNotSentError(noPlaceError{kind: kind})
}

func newOverError(kind ownership.Kind) error {
	return pace.NewNotSentError(noPlaceError{kind: kind, isOver: true})
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
	r := p.begin(v, groupOf(ctx, kind))
	if r == nil {
		return answer, newNoPlaceError(kind)
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
