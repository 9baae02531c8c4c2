package pace

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// probePeriod is the time from one request to a server that cannot be reached to the next.
	probePeriod = time.Second
	// outagePeriod is the time between two log lines about an outage.
	outagePeriod = time.Minute
)

// Reach observes the answers of all requests to a server, and so whether the server can be reached. NewReach makes one.
// It is safe for concurrent use.
type Reach struct {
	log   *slog.Logger
	clock clock.WithTicker

	mu       sync.Mutex
	since    time.Time     // when the server could not be reached for the first time; zero while it can; guarded by mu, as all below
	back     chan struct{} // closed when it can be reached again; nil while it can
	probed   time.Time     // when Wait let a request through
	counted  breaks        // so far
	verified breaks        // after which the server was verified
	checked  time.Time     // when the last verification began
	failure  error         // of the last try to verify it; nil after a success
	told     time.Time     // when that was logged
	failed   int           // requests since the outage was logged
	logged   time.Time     // when an outage was logged
	isLogged bool          // whether this one was
	pending  int           // requests without an answer
	heard    time.Time     // when the last answer came that ends a silence, or the first pending or failed request after it began
	slowest  time.Duration // of the answers since the server was verified
	kinds    map[string]answers

	isFailing bool // the last answer has not ended a silence

	verifying chan struct{} // has an element while a caller of Await verifies
}

// NewReach returns the Reach of a server that can be reached.
func NewReach(log *slog.Logger, clock clock.WithTicker) *Reach {
	return &Reach{log: log, clock: clock, kinds: make(map[string]answers), verifying: make(chan struct{}, 1)}
}

// UnreachableError means that a request got no answer.
type UnreachableError struct{ err error }

// Error implements error.
func (e UnreachableError) Error() string { return e.err.Error() }

// Unwrap returns the error of the connection.
func (e UnreachableError) Unwrap() error { return e.err }

// IsUnreachable reports whether an error means that the server could not be reached. Reach logs that.
func IsUnreachable(err error) bool {
	_, is := errors.AsType[UnreachableError](err)
	return is
}

// Wrap returns a transport whose requests r observes.
func (r *Reach) Wrap(next http.RoundTripper) http.RoundTripper { return reaching{next, r} }

type reaching struct {
	next  http.RoundTripper
	reach *Reach
}

// RoundTrip implements http.RoundTripper.
func (t reaching) RoundTrip(request *http.Request) (*http.Response, error) {
	sent := t.reach.begin(request)
	response, err := guardOf(request, t.reach).send(t.next, request)
	switch {
	case err == nil:
		shown := evidenceOf(AnswerOf(request, response))
		t.reach.answered(sent, shown)
		if isDoubtful(request, shown) {
			t.reach.doubt(sent)
		}
	case IsNotSent(err):
		t.reach.abandoned()
	case request.Context().Err() == nil: // else the caller has given up
		t.reach.refused(err)
		err = UnreachableError{err}
	default:
		t.reach.abandoned()
		if errors.Is(request.Context().Err(), context.DeadlineExceeded) && t.reach.isUnexpected(sent) {
			t.reach.doubt(sent) // the network may swallow requests
		}
	}
	return response, err
}

// WrappedRoundTripper implements net.RoundTripperWrapper.
func (t reaching) WrappedRoundTripper() http.RoundTripper { return t.next }

func (r *Reach) answered(sent sentRequest, shown evidence) {
	r.mu.Lock()
	r.noteSilenceLocked()
	r.noteAnswerLocked(sent, shown)
	r.pending--
	since, failed, isLogged := r.since, r.failed, r.isLogged
	if !since.IsZero() {
		close(r.back)
		r.since, r.back, r.failed, r.isLogged = time.Time{}, nil, 0, false
	}
	r.mu.Unlock()
	if isLogged {
		r.log.Info("the server is reached again", "after", r.clock.Since(since).Round(time.Millisecond), "requests", failed)
	}
}

// abandoned records that a request has ended without an answer, and not because of the server.
func (r *Reach) abandoned() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noteSilenceLocked()
	r.pending--
}

// doubt counts an outage in which something has answered, or nothing has failed. The result of a verification says enough
// about its own requests.
func (r *Reach) doubt(sent sentRequest) {
	if sent.part != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counted.outages++
}

func (r *Reach) refused(err error) {
	if since, failed, isDue := r.count(); isDue {
		r.log.Warn("the server cannot be reached", "since", since, "requests", failed, "error", Brief(err))
	}
}

// count counts a request that got no answer. It reports whether the outage must be logged, when it began, and how
// many requests have failed since the last line.
func (r *Reach) count() (since time.Time, failed int, isDue bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	r.pending--
	if r.since.IsZero() {
		r.since, r.probed, r.back = now, now, make(chan struct{})
		r.counted.outages++
	}
	r.failed++
	if !r.logged.IsZero() && now.Sub(r.logged) < outagePeriod {
		return r.since, r.failed, false
	}
	failed = r.failed
	r.logged, r.isLogged, r.failed = now, true, 0
	return r.since, failed, true
}

// Since returns the time since which the server cannot be reached; false if it can be reached.
func (r *Reach) Since() (time.Time, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.since, !r.since.IsZero()
}

// Wait waits while the server counts as unreachable. Once every probePeriod it lets a caller through, whose request
// shows whether the server can be reached. It returns the error of ctx if that ends first.
func (r *Reach) Wait(ctx context.Context) error {
	for {
		back, wait := r.enter()
		if wait <= 0 {
			return nil
		}
		select {
		case <-back:
		case <-r.clock.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Await is Wait. After an outage, verify is called before any caller returns: another state, or another server, may
// answer. It is called again as long as it returns an error, and at most once every probePeriod. It sends its
// requests with the context that it gets, the most conclusive one last.
func (r *Reach) Await(ctx context.Context, verify func(context.Context) error) error {
	for !r.hasVerifiedAll() {
		if err := r.Wait(ctx); err != nil {
			return err
		}
		if err := r.verify(ctx, verify); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// hasVerifiedAll reports whether the server was verified after the last break. It counts a silence first: else the write for
// which its caller waits would not be sent.
func (r *Reach) hasVerifiedAll() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noteSilenceLocked()
	return r.verified == r.counted
}

// verify calls verify, unless another caller has done it meanwhile. It returns the error of ctx.
func (r *Reach) verify(ctx context.Context, verify func(context.Context) error) error {
	select {
	case r.verifying <- struct{}{}:
		defer func() { <-r.verifying }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if r.hasVerifiedAll() {
		return nil
	}
	if err := r.awaitNextCheck(ctx); err != nil {
		return err
	}
	v := r.beginVerification()
	if v == nil {
		return nil
	}
	err := verify(context.WithValue(ctx, verificationKey{}, v))
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if r.endVerification(v, err) && !IsUnreachable(err) {
		r.log.WarnContext(ctx, "the history of the server cannot be verified after an outage; nothing is collected until then", "error", Brief(err))
	}
	return ctx.Err()
}

// awaitNextCheck waits until probePeriod has passed since the last verification began: something in front of a server may
// answer a part of all requests for ever, and each of its answers is an outage. It returns the error of ctx if that ends
// first.
func (r *Reach) awaitNextCheck(ctx context.Context) error {
	r.mu.Lock()
	wait := probePeriod - r.clock.Since(r.checked)
	r.mu.Unlock()
	if wait <= 0 {
		return ctx.Err()
	}
	select {
	case <-r.clock.After(wait):
	case <-ctx.Done():
	}
	return ctx.Err()
}

// Unverified returns the error of the last try to verify the server after an outage; nil if it has succeeded.
func (r *Reach) Unverified() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failure
}

// enter returns the longest time that a caller has to wait, and a channel that ends the wait earlier.
func (r *Reach) enter() (back <-chan struct{}, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.since.IsZero() {
		return nil, 0
	}
	if wait = probePeriod - r.clock.Since(r.probed); wait <= 0 {
		r.probed = r.clock.Now()
	}
	return r.back, wait
}
