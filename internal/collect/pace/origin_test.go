package pace_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/coppice-dev/coppice/internal/collect/pace"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
)

// answering answers the request with a number, a millisecond later.
type answering func(n int64) *http.Response

func (f answering) transport() http.RoundTripper {
	var sent atomic.Int64
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		select {
		case <-time.After(time.Millisecond):
			return f(sent.Add(1)), nil
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// page returns an answer of a load balancer.
func page(code int) *http.Response {
	return &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader("default backend")), Header: http.Header{}}
}

// refused returns an answer of an API server.
func refused(code int) *http.Response {
	response := page(code)
	response.Body = io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Failure"}`))
	return response
}

// R4: an answer that proves nothing about the server is an outage, if no server behind an APIService may have given it.
func TestR4_AnswersOfOthersAreOutages(t *testing.T) {
	audited := page(http.StatusTooManyRequests)
	audited.Header.Set("Audit-Id", "1")
	for name, test := range map[string]struct {
		path   string
		answer *http.Response
		want   int // verifications
	}{
		"an object":                    {pods, page(http.StatusOK), 0},
		"a page with 401":              {pods, page(http.StatusUnauthorized), 1},
		"401":                          {pods, refused(http.StatusUnauthorized), 1},
		"a page with 403":              {pods, page(http.StatusForbidden), 1},
		"403":                          {pods, refused(http.StatusForbidden), 0},
		"a page with 404":              {pods, page(http.StatusNotFound), 1},
		"404":                          {pods, refused(http.StatusNotFound), 0},
		"a page with 429":              {pods, page(http.StatusTooManyRequests), 1},
		"429":                          {pods, refused(http.StatusTooManyRequests), 0},
		"429 of priority and fairness": {pods, audited, 0},
		"a page with 500":              {pods, page(http.StatusInternalServerError), 1},
		"503":                          {pods, refused(http.StatusServiceUnavailable), 1},
		"a page for an APIService":     {cars, page(http.StatusNotFound), 0},
		"401 for an APIService":        {cars, refused(http.StatusUnauthorized), 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reach := newReach()
				through := reach.Wrap(answering(func(int64) *http.Response { return test.answer }).transport())
				if err := reads(t.Context(), t, through, test.path); err != nil {
					t.Fatal(err)
				}
				if got := verifications(t, reach, reach.Wrap(&transport{}), namespaces); got != test.want {
					t.Errorf("verified %d times, want %d", got, test.want)
				}
			})
		})
	}
}

// R4: while all answers are failures, the storage of the server may be away, and it may come back from a backup. A write by what
// was known before is not sent until the server was verified. Failures between other answers, as those of webhooks, are none
// of that.
func TestR4_FailuresEndNoSilence(t *testing.T) {
	panicked := func() *http.Response {
		response := page(http.StatusInternalServerError)
		response.Header.Set("Audit-Id", "1")
		return response
	}
	for name, test := range map[string]struct {
		path   string
		answer func() *http.Response // for some seconds
		others bool                  // of which the server answers some
		want   int                   // verifications
	}{
		"500":                       {pods, func() *http.Response { return refused(http.StatusInternalServerError) }, false, 1},
		"500 in plain text":         {pods, panicked, false, 1},
		"500 for a group":           {cars, func() *http.Response { return refused(http.StatusInternalServerError) }, false, 1},
		"a page for an APIService":  {cars, func() *http.Response { return page(http.StatusNotFound) }, false, 1},
		"500 between other answers": {pods, func() *http.Response { return refused(http.StatusInternalServerError) }, true, 0},
		"pages between others":      {cars, func() *http.Response { return page(http.StatusNotFound) }, true, 0},
		"403":                       {pods, func() *http.Response { return refused(http.StatusForbidden) }, false, 0},
		"429":                       {pods, func() *http.Response { return refused(http.StatusTooManyRequests) }, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reach := newReach()
				through := reach.Wrap(answering(func(int64) *http.Response { return test.answer() }).transport())
				back := reach.Wrap(&transport{})
				for range 6 {
					if err := reads(t.Context(), t, through, test.path); err != nil {
						t.Fatal(err)
					}
					time.Sleep(700 * time.Millisecond)
					if test.others {
						_ = reads(t.Context(), t, back, namespaces)
					}
				}
				condition := pace.WithCondition(t.Context(), func() error { return nil })
				if err := deletes(condition, t, back); pace.IsNotSent(err) != (test.want > 0) {
					t.Errorf("the first write: %v", err)
				}
				if got := verifications(t, reach, back, namespaces); got != test.want {
					t.Errorf("verified %d times, want %d", got, test.want)
				}
				if err := deletes(condition, t, back); err != nil {
					t.Errorf("the next write: %v", err)
				}
			})
		})
	}
}

// A write that a webhook refuses with 500 again and again, and nothing else happens: a caller verifies the server first, and each
// try is sent.
func TestR4_RepeatedFailuresAreSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reach := newReach()
		back := reach.Wrap(&transport{})
		refusing := reach.Wrap(answering(func(int64) *http.Response { return refused(http.StatusInternalServerError) }).transport())
		for try := range 5 {
			want := min(try, 1)
			if got := verifications(t, reach, back, namespaces); got != want {
				t.Errorf("before try %d: verified %d times, want %d", try, got, want)
			}
			if err := deletes(pace.WithCondition(t.Context(), func() error { return nil }), t, refusing); err != nil {
				t.Errorf("try %d: %v", try, err)
			}
			time.Sleep(time.Minute)
		}
	})
}

// R4: an answer of a verification that is a failure covers no silence.
func TestR4_FailuresOfAVerificationCoverNoSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failure := reply{takes: 4 * time.Second, status: http.StatusInternalServerError}
		reach, server := newReach(), slow{cars: {takes: time.Hour}, pods: failure, namespaces: {takes: 2 * time.Second}}
		through := reach.Wrap(server)
		if err := reads(t.Context(), t, through, namespaces); err != nil {
			t.Fatal(err)
		}
		hidden, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_ = reads(hidden, t, through, cars)
		tries := 0
		err := reach.Await(t.Context(), func(ctx context.Context) error {
			if tries++; tries == 1 {
				return reads(ctx, t, through, pods)
			}
			return reads(ctx, t, through, namespaces)
		})
		if err != nil || tries != 2 {
			t.Errorf("verified %d times, want 2: the first answer is a failure; error %v", tries, err)
		}
	})
}

// R4: a server in front of which something answers for ever is verified once a second at most, however many requests it
// answers. In between, callers go on if it was verified.
func TestR4_AnswersOfOthersCauseNoStorm(t *testing.T) {
	for name, answers := range map[string]answering{
		"401 to all requests": func(int64) *http.Response { return refused(http.StatusUnauthorized) },
		"429 to some": func(n int64) *http.Response {
			if n%3 == 0 {
				return page(http.StatusTooManyRequests)
			}
			return page(http.StatusOK)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const callers, seconds = 64, 60
				reach := newReach()
				var verified, done atomic.Int64
				through := reach.Wrap(answers.transport())
				ctx, cancel := context.WithTimeout(t.Context(), seconds*time.Second)
				defer cancel()
				verify := func(ctx context.Context) error {
					verified.Add(1)
					response, err := send(ctx, through)
					if err == nil && response.StatusCode != http.StatusOK {
						err = errors.New("it is refused")
					}
					return err
				}
				for range callers {
					go func() {
						for reach.Await(ctx, verify) == nil {
							_, _ = send(ctx, through)
							done.Add(1)
							time.Sleep(10 * time.Millisecond)
						}
					}()
				}
				<-ctx.Done()
				synctest.Wait()
				if got := verified.Load(); got < seconds/2 || got > seconds+1 {
					t.Errorf("verified %d times in %d seconds", got, seconds)
				}
				if got := done.Load(); name == "429 to some" && got < seconds*callers/4 {
					t.Errorf("%d requests in %d seconds", got, seconds)
				}
			})
		})
	}
}

// send sends a GET.
func send(ctx context.Context, through http.RoundTripper) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://server"+pods, nil)
	if err != nil {
		return nil, err
	}
	return through.RoundTrip(request)
}

// A part of the body of an error is read to see who has sent it. The caller gets all of it, and its end.
func TestBodiesAreReadInPartAndPutBack(t *testing.T) {
	broken := errors.New("connection reset")
	long := strings.Repeat("x", 3*refusal.MaxStatus)
	for name, test := range map[string]struct {
		code int
		body io.Reader
		read int
		want error
	}{
		"an object":       {http.StatusOK, strings.NewReader(long), 0, nil},
		"a gateway":       {http.StatusBadGateway, strings.NewReader(long), 0, nil},
		"a short one":     {http.StatusNotFound, strings.NewReader("short"), len("short"), nil},
		"a long one":      {http.StatusNotFound, strings.NewReader(long), refusal.MaxStatus, nil},
		"a broken one":    {http.StatusNotFound, io.MultiReader(strings.NewReader("short"), iotest.ErrReader(broken)), len("short"), broken},
		"byte after byte": {http.StatusForbidden, iotest.OneByteReader(strings.NewReader("short")), len("short"), nil},
	} {
		counted := &counter{Reader: test.body}
		response := &http.Response{StatusCode: test.code, Body: counted}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://server"+pods, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer := pace.AnswerOf(request, response)
		if counted.read != test.read || len(answer.Body) != test.read || answer.Code != test.code || answer.Path != pods {
			t.Errorf("%s: %d bytes are read, want %d; %d %s", name, counted.read, test.read, answer.Code, answer.Path)
		}
		body, err := io.ReadAll(response.Body)
		if _ = response.Body.Close(); !errors.Is(err, test.want) || len(body) != counted.read || !counted.isClosed {
			t.Errorf("%s: the caller gets %d bytes of %d; closed: %t; error %v", name, len(body), counted.read, counted.isClosed, err)
		}
	}
}

// counter counts the bytes that are read.
type counter struct {
	io.Reader

	read     int
	isClosed bool
}

// Read implements io.Reader.
func (c *counter) Read(part []byte) (int, error) {
	n, err := c.Reader.Read(part)
	c.read += n
	return n, err
}

// Close implements io.Closer.
func (c *counter) Close() error {
	c.isClosed = true
	return nil
}
