package serviceendpoints

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"
)

// mostAttempts limits the number of endpoints that one request tries.
const mostAttempts = 5

// idempotent is a header that is not sent if it has no value. It lets http.Transport repeat a request on
// another connection if an idle connection turns out to be closed: the pod may have ended.
const idempotent = "Idempotency-Key"

// endpointTransport sends each request to an endpoint of a Service. If it cannot connect to one, it tries
// another. It does not repeat a request that was sent on a new connection: the request may have had
// effects.
type endpointTransport struct {
	next      http.RoundTripper
	endpoints *Resolver
	ref       Reference
}

// WrappedRoundTripper implements utilnet.RoundTripperWrapper.
func (t *endpointTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip implements http.RoundTripper.
func (t *endpointTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		defer r.Body.Close() // each attempt has its own copy
	}
	addresses, err := t.endpoints.Addresses(r.Context(), t.ref)
	if problem, ok := errors.AsType[*Unreachable](err); ok {
		return nil, fmt.Errorf("%w: %s", problem, problem.Remedy)
	}
	if err != nil {
		return nil, err
	}
	rand.Shuffle(len(addresses), func(i, j int) { addresses[i], addresses[j] = addresses[j], addresses[i] })
	addresses = addresses[:min(len(addresses), mostAttempts)]
	var failed error
	for i, address := range addresses {
		response, sent, err := t.send(r, address, attemptTimeout(r.Context(), len(addresses)-i))
		if err == nil {
			return response, nil
		}
		failed = fmt.Errorf("endpoint %s of service/%s in %q: %w", address, t.ref.Name, t.ref.Namespace, err)
		if sent || r.Context().Err() != nil {
			break
		}
	}
	return nil, failed
}

// attemptTimeout returns how long to wait for a connection if that many endpoints are left to try: a part of the
// remaining time of the request.
func attemptTimeout(ctx context.Context, left int) time.Duration {
	whole := webhookTimeout
	if deadline, ok := ctx.Deadline(); ok {
		whole = time.Until(deadline)
	}
	return whole / time.Duration(left)
}

// errNoConnection ends an attempt.
var errNoConnection = errors.New("no connection in time")

// send sends a request to one address. sent reports whether the request may have arrived there.
func (t *endpointTransport) send(r *http.Request, address string, patience time.Duration) (response *http.Response, sent bool, err error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	timer := time.AfterFunc(patience, func() { cancel(errNoConnection) })
	var connected atomic.Bool
	attempt := r.Clone(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { connected.Store(false) }, // also when an idle connection turns out to be closed
		GotConn: func(httptrace.GotConnInfo) { timer.Stop(); connected.Store(true) },
	}))
	if attempt.Host == "" {
		attempt.Host = r.URL.Host
	}
	attempt.URL.Host = address
	attempt.Header[idempotent] = nil
	switch {
	case r.GetBody != nil:
		attempt.Body, err = r.GetBody()
	case r.Body != nil && r.Body != http.NoBody:
		err = errors.New("the request cannot be repeated")
	}
	if err == nil {
		response, err = t.next.RoundTrip(attempt)
	}
	timer.Stop()
	if err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, errNoConnection) {
			err = errNoConnection
		}
		cancel(nil)
		return nil, connected.Load(), err
	}
	response.Body = &cancelingBody{response.Body, func() { cancel(nil) }}
	return response, true, nil
}

// cancelingBody ends the context of its request when it is closed.
type cancelingBody struct {
	io.ReadCloser

	cancel func()
}

// Close implements io.Closer.
func (b *cancelingBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}
