package restore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
)

// Unrepeated returns a configuration whose clients send each write once, and repeat no read that the server puts off for long. client-go would repeat a write that the server puts
// off, at the times that the server names, until the time for the write ends. Its error would be that end then: nobody would
// see the answers of the server, nor do something else in the meantime.
func Unrepeated(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return unrepeated{next} })
	return config
}

// longestDelay is the longest time, in seconds, that a server may name for the repetition of a read: the longest one that priority and
// fairness names. client-go waits for it up to ten times.
const longestDelay = 32

// unrepeated is a transport that passes on the answers to writes, and to reads that would wait too long, without the header for
// which client-go repeats them.
type unrepeated struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t unrepeated) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	switch {
	case err != nil, response.Header.Get("Retry-After") == "", request.Method == http.MethodGet && !isForLong(response):
		return response, err
	case strings.HasPrefix(response.Header.Get("Content-Type"), "application/"): // a Status has the words and the delay, too
		response.Header.Del("Retry-After")
		return response, nil
	}
	return client.WithoutRetry(given{response}).RoundTrip(request) // a Status takes the delay from the header
}

// isForLong reports whether a server puts off a request for too long. client-go reads the header in the same way.
func isForLong(response *http.Response) bool {
	seconds, err := strconv.Atoi(response.Header.Get("Retry-After"))
	return err == nil && seconds > longestDelay
}

// WrappedRoundTripper implements net.RoundTripperWrapper.
func (t unrepeated) WrappedRoundTripper() http.RoundTripper { return t.next }

// given is a transport with a response that exists already.
type given struct{ response *http.Response }

// RoundTrip implements http.RoundTripper.
func (t given) RoundTrip(*http.Request) (*http.Response, error) { return t.response, nil }

// Patience returns how much longer to repeat a write that has got an error, some time after its first try. The write is not
// repeated if the next try would be later.
type Patience func(err error, since time.Duration) time.Duration

// WhilePutOff returns the patience with a server that puts off a write, for a time after the first try.
func WhilePutOff(within time.Duration) Patience {
	return func(err error, since time.Duration) time.Duration {
		if !IsPutOff(err) {
			return 0
		}
		return within - since
	}
}

// Until returns a patience that also ends at a time.
func (p Patience) Until(end time.Time) Patience {
	return func(err error, since time.Duration) time.Duration {
		return min(p(err, since), end.Sub(clock.RealClock{}.Now()))
	}
}

// Repeat makes a write, and makes it again as long as there is patience with its error, at the times that the server names. It
// makes the write once without a patience. It returns the last answer, also if ctx ends meanwhile. The error is a DoubtError
// if that answer does not say what became of an earlier try.
func Repeat(ctx context.Context, patience Patience, write func() error) error {
	var earlier error
	now := clock.RealClock{}
	began := now.Now()
	for wait := firstRetry; ; wait = min(2*wait, maxRetry) {
		err := write()
		pause := max(wait, Delay(err))
		if err == nil || patience == nil || pause > patience(err, now.Since(began)) {
			return withDoubt(err, earlier)
		}
		select {
		case <-ctx.Done():
		case <-now.After(pause):
		}
		if ctx.Err() != nil {
			return withDoubt(err, earlier)
		}
		if IsInDoubt(err) {
			earlier = err
		}
	}
}

// DoubtError is the error of a repeated write that the server may have made in an earlier try. Its last answer is about the
// last try alone, and an error about an object that is missing, has changed or exists may be the effect of the earlier try.
type DoubtError struct{ Last, Earlier error }

// Error implements error.
func (e *DoubtError) Error() string {
	return fmt.Sprintf("%v; an earlier try may have been made: %v", e.Last, e.Earlier)
}

// Unwrap returns both answers. The code and the reason of the error are those of the last one.
func (e *DoubtError) Unwrap() []error { return []error{e.Last, e.Earlier} }

// withDoubt returns the last error of a repeated write, with an earlier answer that left open whether the write was made.
func withDoubt(last, earlier error) error {
	if last == nil || earlier == nil || IsInDoubt(last) {
		return last
	}
	return &DoubtError{last, earlier}
}

// IsInDoubt reports whether the server may have made a write that has got an error: no answer has arrived, or one that says that
// the write is not completed.
func IsInDoubt(err error) bool {
	if err == nil {
		return false
	}
	if _, isDoubt := errors.AsType[*DoubtError](err); isDoubt {
		return true
	}
	var answer apierrors.APIStatus
	return !errors.As(err, &answer) || answer.Status().Code != http.StatusTooManyRequests && IsPutOff(err)
}

// IsPutOff reports whether the server has answered that the same write may succeed soon: it is busy, or has not completed the
// write, which may be done all the same unless it was busy. The denial of a webhook or a policy does not count, whatever its
// code.
func IsPutOff(err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return false
	}
	refused, isRefused := refusal.Of(err)
	if isRefused && (refused.By != refusal.ByFailure || Delay(err) == 0) {
		return false
	}
	code := answer.Status().Code
	return code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
}

// Delay returns how long a client should wait before it repeats the request, according to the answer; 0 if the answer does
// not name a time.
func Delay(err error) time.Duration {
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return time.Duration(seconds) * time.Second // an int32 in the answer
}
