package namespaces

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/collect/pace"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
)

// contact observes the answers of a server to all requests of a controller. A request may wait in the client, for the rate
// limit or for the time that the server names in Retry-After. If no other request is answered meanwhile, the server may have
// been put back to an earlier state, and no request has failed (R4). Answers of others, such as load balancers, do not count,
// nor do those of a server that fails, as without its storage.
type contact struct {
	clock clock.PassiveClock

	mu       sync.Mutex
	heard    time.Time // the last answer that counts; guarded by mu
	silences int64     // how often no answer came for longer than latest; guarded by mu
}

func newContact(clock clock.PassiveClock) *contact { return &contact{clock: clock, heard: clock.Now()} }

// wrap returns a transport whose requests c observes. It is put around pace.Conditional.
func (c *contact) wrap(next http.RoundTripper) http.RoundTripper { return observed{next, c} }

// answered records an answer. It returns the number of silences before it.
func (c *contact) answered() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	if now.Sub(c.heard) > latest {
		c.silences++
	}
	c.heard = now
	return c.silences
}

// lasts reports whether the server has not been silent since an answer before which there was a number of silences. A nil
// contact observes nothing, and always lasts.
func (c *contact) lasts(silences int64) bool {
	if c == nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.silences == silences && c.clock.Since(c.heard) <= latest
}

// deliveryKey is the key of a delivery in a context.
type deliveryKey struct{}

// delivery is a request on its way to the server. client-go may send it several times.
type delivery struct {
	trust    *trust                    // of a write that rests on it; nil for others
	began    atomic.Pointer[time.Time] // when it was last sent
	isOpen   atomic.Bool               // it was sent, and the server has not answered, or the answer has broken off
	silences atomic.Int64              // of the contact, before its last answer that counts

	isUnobserved bool // no contact knows when it is sent and answered
}

// isUnanswered reports whether no server has answered the request, which has ended with an error or nil. A delivery that is
// observed knows better than the error: client-go keeps no header of the server's own answers in plain text.
func (d *delivery) isUnanswered(err error) bool {
	if d == nil || d.isUnobserved {
		return refusal.IsUnanswered(err)
	}
	return d.isOpen.Load()
}

// deliveryOf returns the delivery of a request, by its context; nil if it has none.
func deliveryOf(ctx context.Context) *delivery {
	d, _ := ctx.Value(deliveryKey{}).(*delivery)
	return d
}

type observed struct {
	next    http.RoundTripper
	contact *contact
}

// RoundTrip implements http.RoundTripper.
func (t observed) RoundTrip(request *http.Request) (*http.Response, error) {
	d := deliveryOf(request.Context())
	if d == nil {
		d = &delivery{}
	}
	if d.trust != nil {
		d.trust.renew(request.Context())
	}
	began := t.contact.clock.Now()
	d.began.Store(&began)
	d.isOpen.Store(true)
	response, err := t.next.RoundTrip(request)
	if err != nil {
		d.isOpen.Store(!pace.IsNotSent(err))
		return response, err
	}
	answer := pace.AnswerOf(request, response)
	if answer.EndsSilence() {
		d.silences.Store(t.contact.answered())
	}
	if answer.IsFromServer() { // else something has answered in its place
		d.isOpen.Store(false)
		response.Body = body{response.Body, d}
	}
	if now := t.contact.clock.Now(); !mayRepeat(request.Context(), response, now, now.Sub(began)) {
		response.Header.Del(retryAfter)
	}
	return response, nil
}

// body is the body of an answer. If it breaks off, the rest may have been lost with the server.
type body struct {
	io.ReadCloser

	of *delivery
}

// Read implements io.Reader.
func (b body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.of.isOpen.Store(true)
	}
	return n, err
}

// WrappedRoundTripper implements net.RoundTripperWrapper.
func (t observed) WrappedRoundTripper() http.RoundTripper { return t.next }

// retryAfter is the header in which a server asks to repeat a request, and client-go does.
const retryAfter = "Retry-After"

// mayRepeat reports whether a request that took some time can be repeated before its deadline as the answer asks. If not,
// the answer has to be the result: client-go would lose it, and return the end of the deadline.
func mayRepeat(ctx context.Context, response *http.Response, now time.Time, took time.Duration) bool {
	seconds, err := strconv.Atoi(response.Header.Get(retryAfter))
	deadline, ok := ctx.Deadline()
	if err != nil || !ok {
		return true
	}
	return seconds < int((deadline.Sub(now)-took)/time.Second) // with a second to spare
}
