package pace_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/collect/pace"
	"github.com/coppice-dev/coppice/internal/testing/transcript"
)

// transport answers requests, or fails.
type transport struct{ away atomic.Bool }

func (t *transport) RoundTrip(*http.Request) (*http.Response, error) {
	if t.away.Load() {
		return nil, errors.New("connection refused")
	}
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

// While a server is away, 64 callers send one request a second between them, and the log gets a line a minute. When
// it is back, all of them go on within a second.
func TestUnreachableServerIsProbedAndLoggedSparingly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logs transcript.Transcript
		server := &transport{}
		reach := pace.NewReach(slog.New(slog.NewTextHandler(&logs, nil)), clock.RealClock{})
		wrapped := reach.Wrap(server)
		var requests atomic.Int64
		send := func() error {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://server", nil)
			if err != nil {
				return err
			}
			requests.Add(1)
			response, err := wrapped.RoundTrip(request)
			if err == nil {
				_ = response.Body.Close()
			}
			return err
		}
		server.away.Store(true)
		if err := send(); !pace.IsUnreachable(err) {
			t.Fatal(err)
		}
		began, away := reach.Since()
		if !away || !began.Equal(time.Now()) {
			t.Errorf("since %v, %t", began, away)
		}
		var done atomic.Int64
		for range 64 {
			go func() {
				for {
					if reach.Wait(t.Context()) != nil {
						return
					}
					if send() == nil {
						done.Add(1)
						return
					}
				}
			}()
		}
		time.Sleep(10*time.Minute + 500*time.Millisecond)
		synctest.Wait()
		if n := requests.Load(); n < 590 || n > 610 {
			t.Errorf("%d requests in ten minutes", n)
		}
		if n := strings.Count(logs.String(), "cannot be reached"); n != 11 {
			t.Errorf("%d lines in ten minutes:\n%s", n, logs.String())
		}
		server.away.Store(false)
		time.Sleep(time.Second)
		synctest.Wait()
		if _, away := reach.Since(); away || done.Load() != 64 || strings.Count(logs.String(), "again") != 1 {
			t.Errorf("away: %t, %d callers have gone on:\n%s", away, done.Load(), logs.String())
		}
	})
}

// After each outage, callers wait until one of them has verified the server, which is tried again until it succeeds.
// Without an outage nothing is verified.
func TestServerIsVerifiedAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &transport{}
		reach := pace.NewReach(slog.New(slog.DiscardHandler), clock.RealClock{})
		wrapped := reach.Wrap(server)
		send := func() error {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://server", nil)
			if err != nil {
				return err
			}
			response, err := wrapped.RoundTrip(request)
			if err == nil {
				_ = response.Body.Close()
			}
			return err
		}
		var verified, done atomic.Int64
		var ready atomic.Bool
		verify := func(context.Context) error {
			verified.Add(1)
			if err := send(); err != nil || ready.Load() {
				return err
			}
			return errors.New("the server starts")
		}
		call := func() {
			for range 64 {
				go func() {
					if reach.Await(t.Context(), verify) == nil {
						done.Add(1)
					}
				}()
			}
		}
		call()
		synctest.Wait()
		if verified.Load() != 0 || done.Load() != 64 {
			t.Fatalf("without an outage: %d have verified, %d have gone on", verified.Load(), done.Load())
		}
		for outage := range 2 {
			ready.Store(false)
			done.Store(0)
			server.away.Store(true)
			if err := send(); !pace.IsUnreachable(err) {
				t.Fatal(err)
			}
			call()
			time.Sleep(10 * time.Second)
			server.away.Store(false)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if got := verified.Swap(0); got < 15 || got > 25 || done.Load() != 0 {
				t.Errorf("outage %d: %d have verified a server that is not ready, once a second; %d have gone on", outage, got, done.Load())
			}
			ready.Store(true)
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if verified.Swap(0) != 1 || done.Load() != 64 {
				t.Errorf("outage %d: %d have gone on", outage, done.Load())
			}
		}
	})
}
