package allocation

import "context"

// request is a request that allocates, in several attempts if a value that it guessed is taken. Its attempts follow one
// another.
type request struct {
	counted string // the change that CountOnce has counted last
}

type requestKey struct{}

// WithRequest returns a context for all attempts of one request.
func WithRequest(ctx context.Context) context.Context {
	return context.WithValue(ctx, requestKey{}, &request{})
}

// CountOnce calls count, unless an earlier attempt of the same request has counted the same change. Admission sees an object
// with its allocated values, so each attempt passes admission again: a policy may refuse a value. But a quota charges a
// request for each call, and never looks at the values.
func CountOnce(ctx context.Context, change string, count func() error) error {
	r, isAttempt := ctx.Value(requestKey{}).(*request)
	if isAttempt && r.counted == change {
		return nil
	}
	err := count()
	if isAttempt && err == nil {
		r.counted = change
	}
	return err
}
