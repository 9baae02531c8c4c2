package collector

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/coppice-dev/coppice/internal/ownership"
	"github.com/coppice-dev/coppice/internal/pace"
	"github.com/coppice-dev/coppice/internal/verdict"
)

// pacedAPI lets as many requests be under way at a time as its limiter finds the
// server able to take.
type pacedAPI struct {
	API
	limiter *pace.Limiter
}

// Get implements API.
func (p pacedAPI) Get(ctx context.Context, ref Ref) (ownership.Object, error) {
	return paced(ctx, p.limiter, func() (ownership.Object, error) { return p.API.Get(ctx, ref) })
}

// Delete implements API.
func (p pacedAPI) Delete(ctx context.Context, observed ownership.Object, propagation verdict.Propagation) error {
	_, err := paced(ctx, p.limiter, func() (struct{}, error) { return struct{}{}, p.API.Delete(ctx, observed, propagation) })
	return err
}

// PatchOwners implements API.
func (p pacedAPI) PatchOwners(ctx context.Context, observed ownership.Object, owners []ownership.Reference) (ownership.Object, error) {
	return paced(ctx, p.limiter, func() (ownership.Object, error) { return p.API.PatchOwners(ctx, observed, owners) })
}

// PatchFinalizers implements API.
func (p pacedAPI) PatchFinalizers(ctx context.Context, observed ownership.Object, finalizers []string) (ownership.Object, error) {
	return paced(ctx, p.limiter, func() (ownership.Object, error) { return p.API.PatchFinalizers(ctx, observed, finalizers) })
}

// List implements API.
func (p pacedAPI) List(ctx context.Context, kind ownership.Kind, namespace string, limit int64, after string) (Page, error) {
	return paced(ctx, p.limiter, func() (Page, error) { return p.API.List(ctx, kind, namespace, limit, after) })
}

// paced makes one request when there is room for it.
func paced[T any](ctx context.Context, limiter *pace.Limiter, request func() (T, error)) (T, error) {
	end, err := limiter.Begin(ctx)
	if err != nil {
		var none T
		return none, err
	}
	answer, err := request()
	end(apierrors.IsTooManyRequests(err))
	return answer, err
}
