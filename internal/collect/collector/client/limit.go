package client

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/coppice-dev/coppice/internal/collect/pace"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
)

// Limited returns a client that limits concurrent requests with the limiter. Survey, Newest and
// Outage are not limited: they are few requests per round.
func Limited(next Interface, limiter *pace.Limiter) Interface { return limited{next, limiter} }

type limited struct {
	Interface
	limiter *pace.Limiter
}

// Get implements Interface.
func (c limited) Get(ctx context.Context, ref Ref) (ownership.Object, error) {
	return within(ctx, c.limiter, func() (ownership.Object, error) { return c.Interface.Get(ctx, ref) })
}

// Delete implements Interface.
func (c limited) Delete(ctx context.Context, observed ownership.Object, propagation verdict.Propagation) error {
	_, err := within(ctx, c.limiter, func() (struct{}, error) { return struct{}{}, c.Interface.Delete(ctx, observed, propagation) })
	return err
}

// PatchOwners implements Interface.
func (c limited) PatchOwners(ctx context.Context, observed ownership.Object, owners []ownership.Reference) (ownership.Object, error) {
	return within(ctx, c.limiter, func() (ownership.Object, error) { return c.Interface.PatchOwners(ctx, observed, owners) })
}

// PatchFinalizers implements Interface.
func (c limited) PatchFinalizers(ctx context.Context, observed ownership.Object, finalizers []string) (ownership.Object, error) {
	return within(ctx, c.limiter, func() (ownership.Object, error) { return c.Interface.PatchFinalizers(ctx, observed, finalizers) })
}

// List implements Interface.
func (c limited) List(ctx context.Context, kind ownership.Kind, namespace string, limit int64, after string) (Page, error) {
	return within(ctx, c.limiter, func() (Page, error) { return c.Interface.List(ctx, kind, namespace, limit, after) })
}

// Created implements Interface.
func (c limited) Created(ctx context.Context, observed ownership.Object) (time.Time, error) {
	return within(ctx, c.limiter, func() (time.Time, error) { return c.Interface.Created(ctx, observed) })
}

// within makes one request once the limit allows it.
func within[T any](ctx context.Context, limiter *pace.Limiter, request func() (T, error)) (T, error) {
	end, err := limiter.Begin(ctx)
	if err != nil {
		var none T
		return none, err
	}
	answer, err := request()
	switch {
	case pace.IsNotSent(err):
		end(pace.Unsent)
	case apierrors.IsTooManyRequests(err):
		end(pace.Throttled)
	default:
		end(pace.Answered)
	}
	return answer, err
}
