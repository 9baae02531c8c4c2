package restore

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
)

// Unrepeated returns a configuration whose clients send each write once. client-go would repeat a write that the server puts
// off, at the times that the server names, until the time for the write ends. Its error would be that end then: nobody would
// see the answers of the server, nor do something else in the meantime.
func Unrepeated(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return unrepeated{next} })
	return config
}

// unrepeated is a transport that passes on the answers to writes without the header for which client-go repeats them.
type unrepeated struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t unrepeated) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	switch {
	case err != nil, request.Method == http.MethodGet, response.Header.Get("Retry-After") == "":
		return response, err
	case strings.HasPrefix(response.Header.Get("Content-Type"), "application/"): // a Status has the words and the delay, too
		response.Header.Del("Retry-After")
		return response, nil
	}
	return client.WithoutRetry(given{response}).RoundTrip(request) // a Status takes the delay from the header
}

// WrappedRoundTripper implements net.RoundTripperWrapper.
func (t unrepeated) WrappedRoundTripper() http.RoundTripper { return t.next }

// given is a transport with a response that exists already.
type given struct{ response *http.Response }

// RoundTrip implements http.RoundTripper.
func (t given) RoundTrip(*http.Request) (*http.Response, error) { return t.response, nil }

// Repeat makes a write, and makes it again while isLater reports that its error is an answer that puts it off: at the times
// that the server names, and not later than within after the first. It returns the last answer, also if ctx ends meanwhile.
func Repeat(ctx context.Context, within time.Duration, isLater func(error) bool, write func() error) error {
	now := clock.RealClock{}
	began := now.Now()
	for wait := firstRetry; ; wait = min(2*wait, maxRetry) {
		err := write()
		if !isLater(err) {
			return err
		}
		pause := max(wait, Delay(err))
		if now.Since(began)+pause > within {
			return err
		}
		select {
		case <-ctx.Done():
		case <-now.After(pause):
		}
		if ctx.Err() != nil {
			return err
		}
	}
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
