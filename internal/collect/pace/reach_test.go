package pace_test

import (
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
