package serviceendpoints

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
)

const (
	// largestAnswer, with largestGrowth times the size of the request, bounds an answer. Webhooks that
	// convert answer with as many objects as they get.
	largestAnswer = 16 << 20
	largestGrowth = 4
	// longestRetryAfter is the maximum pause, in seconds, that a webhook may impose before the client
	// repeats a request. Conversion requests have no deadline of their own.
	longestRetryAfter = 5
	// quotedLocation limits how much of a redirect's target an error quotes.
	quotedLocation = 200
)

// redirects returns the status codes on which http.Client follows a redirect.
func redirects() []int {
	return []int{http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect}
}

// boundAnswers returns a transport that limits the cost of a response to the server, and that follows no
// redirect: webhooks must not choose the address to which the server sends objects.
func boundAnswers(next http.RoundTripper) http.RoundTripper { return boundedAnswers{next} }

type boundedAnswers struct{ next http.RoundTripper }

// WrappedRoundTripper implements utilnet.RoundTripperWrapper.
func (b boundedAnswers) WrappedRoundTripper() http.RoundTripper { return b.next }

// RoundTrip implements http.RoundTripper.
func (b boundedAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	most := largestAnswer + largestGrowth*max(r.ContentLength, 0)
	location := response.Header.Get("Location")
	switch {
	case location != "" && slices.Contains(redirects(), response.StatusCode):
		err = fmt.Errorf("the webhook redirects to %q, which the API server does not follow: configure the address that answers", location[:min(len(location), quotedLocation)])
	case response.ContentLength > most:
		err = tooLarge(most)
	}
	if err != nil {
		response.Body.Close()
		return nil, err
	}
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > longestRetryAfter {
		response.Header.Set("Retry-After", strconv.Itoa(longestRetryAfter))
	}
	response.Body = &boundedBody{response.Body, most, most}
	return response, nil
}

func tooLarge(most int64) error {
	return fmt.Errorf("the webhook's answer is larger than %d bytes: it must hold no more than an AdmissionReview or ConversionReview", most)
}

// boundedBody returns an error after too many bytes.
type boundedBody struct {
	io.ReadCloser

	left, most int64
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, tooLarge(b.most)
	}
	return n, err
}
