package pace_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/collect/pace"
)

// serverFunc is a server that is a function.
type serverFunc func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f serverFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func newReach() *pace.Reach { return pace.NewReach(slog.New(slog.DiscardHandler), clock.RealClock{}) }

func answered() (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

// deletes sends a DELETE with a body.
func deletes(ctx context.Context, t *testing.T, through http.RoundTripper) error {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodDelete, "http://server/apis/apps/v1/x", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	response, err := through.RoundTrip(request)
	if err == nil {
		_ = response.Body.Close()
	}
	return err
}

// R4: a request is not sent once its condition does not hold any more, however late that becomes known: before it is sent,
// while it waits for a connection, or when it is sent again. It does not count as an outage, and an error that the
// server gives because of the missing body does not count as an answer.
func TestR4_ConditionIsCheckedWhenARequestLeaves(t *testing.T) {
	changed := errors.New("changed")
	for name, test := range map[string]struct {
		before bool // the condition is broken before the request
		server func(r *http.Request, breaks func()) (body string, err error)
		want   string
	}{
		"it holds": {server: func(r *http.Request, _ func()) (string, error) { return read(r.Body) }, want: "{}"},
		"before":   {before: true, server: func(*http.Request, func()) (string, error) { return "the request", nil }},
		"while it waits": {server: func(r *http.Request, breaks func()) (string, error) {
			breaks()
			return read(r.Body)
		}},
		"while it waits, and the server answers": {server: func(r *http.Request, breaks func()) (string, error) {
			breaks()
			body, _ := read(r.Body)
			return body, nil
		}},
		"when it is sent again": {server: func(r *http.Request, breaks func()) (string, error) {
			breaks()
			again, err := r.GetBody()
			if err != nil {
				return "", err
			}
			return read(again)
		}},
	} {
		for through, wrap := range map[string]func(http.RoundTripper) http.RoundTripper{
			"Reach": newReach().Wrap, "Conditional": pace.Conditional,
		} {
			t.Run(name+", "+through, func(t *testing.T) {
				isBroken, got := test.before, ""
				wrapped := wrap(serverFunc(func(r *http.Request) (*http.Response, error) {
					var err error
					if got, err = test.server(r, func() { isBroken = true }); err != nil {
						return nil, err
					}
					return answered()
				}))
				err := deletes(pace.WithCondition(t.Context(), func() error {
					if isBroken {
						return changed
					}
					return nil
				}), t, wrapped)
				if isSent := test.want != ""; pace.IsNotSent(err) == isSent || errors.Is(err, changed) == isSent || pace.IsUnreachable(err) {
					t.Errorf("error %v", err)
				}
				if got != test.want {
					t.Errorf("the server got %q, want %q", got, test.want)
				}
			})
		}
	}
}

func read(body io.Reader) (string, error) {
	all, err := io.ReadAll(body)
	return string(all), err
}

// R4: after a request without an answer, and after a time in which none of the pending ones got one, nothing that was
// decided before is sent until the server is verified. A slow answer among others is no silence.
func TestR4_SilenceCountsAsAnOutage(t *testing.T) {
	for name, test := range map[string]struct {
		takes   time.Duration // a request without a condition
		timeout time.Duration
		others  bool // are answered meanwhile
		want    bool // the server must be verified
	}{
		"a quick answer":                        {takes: time.Second, timeout: time.Minute},
		"silence":                               {takes: 4 * time.Second, timeout: time.Minute, want: true},
		"a slow answer among others":            {takes: 4 * time.Second, timeout: time.Minute, others: true},
		"no answer among others in time":        {takes: 4 * time.Second, timeout: 3 * time.Second, others: true, want: true},
		"no answer in a time that is too short": {takes: 4 * time.Second, timeout: time.Second, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var takes atomic.Int64
				reach := newReach()
				server := reach.Wrap(serverFunc(func(r *http.Request) (*http.Response, error) {
					select {
					case <-time.After(time.Duration(takes.Load())):
						return answered()
					case <-r.Context().Done():
						return nil, r.Context().Err()
					}
				}))
				takes.Store(int64(test.takes))
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					ctx, cancel := context.WithTimeout(t.Context(), test.timeout)
					defer cancel()
					_ = deletes(ctx, t, server)
				}()
				synctest.Wait()
				takes.Store(0)
				for range 10 {
					time.Sleep(500 * time.Millisecond)
					if test.others {
						_ = deletes(t.Context(), t, server)
					}
				}
				<-ended
				ctx := pace.WithCondition(t.Context(), func() error { return nil })
				if err := deletes(ctx, t, server); pace.IsNotSent(err) != test.want {
					t.Errorf("error %v", err)
				}
				if err := reach.Await(t.Context(), func(context.Context) error { return nil }); err != nil {
					t.Fatal(err)
				}
				if err := deletes(ctx, t, server); err != nil {
					t.Errorf("verified, and %v", err)
				}
			})
		})
	}
}

// A server that takes some seconds for each answer can be verified.
func TestSlowServersAreVerified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reach := newReach()
		server := reach.Wrap(serverFunc(func(*http.Request) (*http.Response, error) {
			time.Sleep(5 * time.Second)
			return answered()
		}))
		if err := deletes(t.Context(), t, server); err != nil {
			t.Fatal(err)
		}
		verifications := 0
		bounded, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		err := reach.Await(bounded, func(ctx context.Context) error {
			if verifications++; verifications > 3 {
				return errors.New("it is verified again and again")
			}
			return deletes(ctx, t, server)
		})
		if err != nil || verifications != 1 {
			t.Errorf("verified %d times; error %v", verifications, err)
		}
	})
}
