package pace

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/utils/clock"
)

// WritesAtStart is the number of objects that a post-start hook of the API server writes concurrently. Sequential
// writes would take a considerable part of a start.
const WritesAtStart = 16

const (
	// minRetry is the first retry interval. Readiness waits for the hooks, and most of them succeed within
	// some 100 ms.
	minRetry = 10 * time.Millisecond
	// maxRetry is the maximum retry interval.
	maxRetry = 5 * time.Second
	// backOff is the divisor that turns the elapsed time into the wait before a retry: a hook waits at most
	// a tenth longer than necessary.
	backOff = 10
	// logAfter is how long a hook may fail before the failure is logged: some requests to a starting server
	// are expected to fail.
	logAfter = 5 * time.Second
	// logEvery is the interval at which a failure is logged again.
	logEvery = time.Minute
)

// Retry calls do with growing intervals until it returns nil or ctx ends. task describes do in the imperative, for the
// log and the error. Retry logs a persistent failure. The post-start hooks of the API server use it, which create
// objects that every cluster has: a server that has just started may refuse requests.
func Retry(ctx context.Context, log *slog.Logger, task string, do func(context.Context) error) error {
	clock := clock.RealClock{}
	began := clock.Now()
	logAt, logged := began.Add(logAfter), false
	for {
		err := do(ctx)
		now := clock.Now()
		switch {
		case err == nil && logged:
			log.InfoContext(ctx, "post-start task succeeded", "task", task, "after", now.Sub(began).Round(time.Second))
			return nil
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("%s: %w", task, errors.Join(ctx.Err(), err))
		case !now.Before(logAt):
			log.WarnContext(ctx, "post-start task fails and is retried", "task", task, "for", now.Sub(began).Round(time.Second), "error", err)
			logAt, logged = now.Add(logEvery), true
		}
		timer := time.NewTimer(min(max(now.Sub(began)/backOff, minRetry), maxRetry))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%s: %w", task, errors.Join(ctx.Err(), err))
		}
	}
}
