package pace

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestRetryUntilItSucceeds(t *testing.T) {
	for name, test := range map[string]struct {
		failsFor          time.Duration
		warnings          int
		minCalls, maxCall int
		latest            time.Duration // after the task could have succeeded
	}{
		"at once":             {0, 0, 1, 1, 0},
		"while starting":      {300 * time.Millisecond, 0, 15, 31, 30 * time.Millisecond},
		"for some seconds":    {6 * time.Second, 1, 30, 70, 600 * time.Millisecond},
		"for several minutes": {3*time.Minute + time.Second, 3, 60, 110, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var text bytes.Buffer
				began, calls := time.Now(), 0
				err := Retry(t.Context(), slog.New(slog.NewTextHandler(&text, nil)), "create the thing", func(context.Context) error {
					if calls++; time.Since(began) < test.failsFor {
						return errors.New("connection refused")
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				if calls < test.minCalls || calls > test.maxCall {
					t.Errorf("called %d times, want %d to %d", calls, test.minCalls, test.maxCall)
				}
				if late := time.Since(began) - test.failsFor; late > test.latest {
					t.Errorf("succeeded %s late", late)
				}
				log := text.String()
				if got := strings.Count(log, "level=WARN"); got != test.warnings {
					t.Errorf("%d warnings, want %d:\n%s", got, test.warnings, log)
				}
				if test.warnings > 0 && (!strings.Contains(log, "connection refused") || !strings.Contains(log, "create the thing") || !strings.Contains(log, "succeeded")) {
					t.Errorf("the log names neither task, nor error, nor success:\n%s", log)
				}
			})
		})
	}
}

func TestRetryEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
		defer cancel()
		began, broken := time.Now(), errors.New("broken")
		err := Retry(ctx, slog.New(slog.DiscardHandler), "create the thing", func(context.Context) error { return broken })
		if !errors.Is(err, broken) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "create the thing") {
			t.Errorf("%v", err)
		}
		if took := time.Since(began); took != 7*time.Second {
			t.Errorf("returned after %s", took)
		}
	})
}
