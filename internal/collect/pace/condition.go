package pace

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// longSilence is how long requests may wait without any answer before the server counts as doubtful: its machine may have
// been put back to an earlier state, and connections that were being opened lead to that state.
const longSilence = 3 * time.Second

// errUnverified means that the server may not be the observed one.
var errUnverified = errors.New("the server was not verified after an outage")

// NotSentError means that a request was not sent, because its condition no longer held.
type NotSentError struct{ err error }

// Error implements error.
func (e NotSentError) Error() string { return "not sent: " + e.err.Error() }

// Unwrap returns the error of the condition.
func (e NotSentError) Unwrap() error { return e.err }

// NewNotSentError returns the error of a request that is not sent because of err.
func NewNotSentError(err error) NotSentError { return NotSentError{err} }

// IsNotSent reports whether an error means that a request was not sent, because its condition no longer held.
func IsNotSent(err error) bool {
	_, is := errors.AsType[NotSentError](err)
	return is
}

// conditionKey is the key of a condition in a context.
type conditionKey struct{}

// WithCondition returns a context for a request that rests on earlier observations. Reach sends that request only if the
// server was verified after the last outage and condition returns nil. It checks both when the body of the request is
// read: until then the request may wait for its turn or for a connection, while a backup is restored.
func WithCondition(ctx context.Context, condition func() error) context.Context {
	return context.WithValue(ctx, conditionKey{}, condition)
}

// Conditional returns a transport that keeps the conditions of requests, without a Reach.
func Conditional(next http.RoundTripper) http.RoundTripper { return conditional{next} }

type conditional struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t conditional) RoundTrip(request *http.Request) (*http.Response, error) {
	return guardOf(request, nil).send(t.next, request)
}

// WrappedRoundTripper implements net.RoundTripperWrapper.
func (t conditional) WrappedRoundTripper() http.RoundTripper { return t.next }

// guard checks the condition of one request.
type guard struct {
	reach     *Reach // nil: the condition is all
	condition func() error
	failure   atomic.Pointer[NotSentError] // of a check; a transport may read the body in another goroutine
}

// guardOf returns the guard of a request; nil if the request has no condition.
func guardOf(request *http.Request, reach *Reach) *guard {
	condition, ok := request.Context().Value(conditionKey{}).(func() error)
	if !ok {
		return nil
	}
	return &guard{reach: reach, condition: condition}
}

// send sends a request through next, unless its condition does not hold.
func (g *guard) send(next http.RoundTripper, request *http.Request) (*http.Response, error) {
	if g == nil {
		return next.RoundTrip(request)
	}
	if err := g.check(); err != nil {
		if request.Body != nil {
			_ = request.Body.Close()
		}
		return nil, err
	}
	response, err := next.RoundTrip(g.guarded(request))
	failure := g.failure.Load()
	if failure == nil {
		return response, err
	}
	if err == nil {
		_ = response.Body.Close() // of an error: the server has seen a part of the request
	}
	return nil, *failure
}

// check returns why the request must not be sent. The condition comes second, so that it has the result of the
// verification.
func (g *guard) check() error {
	err := errUnverified
	if g.reach == nil || g.reach.isVerified() {
		err = g.condition()
	}
	if err == nil {
		return nil
	}
	failure := NotSentError{err}
	g.failure.Store(&failure)
	return failure
}

// guarded returns the request with a guarded body.
func (g *guard) guarded(request *http.Request) *http.Request {
	if request.Body == nil || request.Body == http.NoBody {
		return request
	}
	request = request.WithContext(request.Context()) // the caller's request must not change
	request.Body = &guardedBody{ReadCloser: request.Body, guard: g}
	if again := request.GetBody; again != nil {
		request.GetBody = func() (io.ReadCloser, error) {
			body, err := again()
			if err != nil {
				return nil, err
			}
			return &guardedBody{ReadCloser: body, guard: g}, nil
		}
	}
	return request
}

// guardedBody checks the condition before its first part is sent. A server does not carry out a request whose body is cut
// off.
type guardedBody struct {
	io.ReadCloser

	guard     *guard
	isChecked bool
}

// Read implements io.Reader.
func (b *guardedBody) Read(part []byte) (int, error) {
	if !b.isChecked {
		if err := b.guard.check(); err != nil {
			return 0, err
		}
		b.isChecked = true
	}
	return b.ReadCloser.Read(part)
}

// isVerified reports whether the server was verified after the last outage, and has not been silent since.
func (r *Reach) isVerified() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noteSilenceLocked()
	return r.verified == r.counted
}

// begin records that a request begins.
func (r *Reach) begin(request *http.Request) sentRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	if r.pending == 0 && !r.isFailing {
		r.heard = now
	}
	r.pending++
	return sentRequest{kindOf(request.URL.Path), r.partOf(request), now, r.slowest}
}

// noteSilenceLocked counts a silence if requests have waited for long and none was answered, or if all answers were failures:
// the storage of the server may be away, and come back from a backup. It is called before each answer counts, before a request
// without one ends, and before a caller learns whether the server was verified.
func (r *Reach) noteSilenceLocked() {
	now := r.clock.Now()
	if (r.pending > 0 || r.isFailing) && now.Sub(r.heard) > longSilence {
		r.counted.silences++
		r.heard = now
	}
}
