package conformance

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/coppice-dev/coppice/internal/cli/conformance/probe"
)

// trial is the run of one check: the T that the check reports to.
type trial struct {
	name string
	ctx  context.Context // as testing.T has one
	// requests are the check's requests, without its cleanup's; set when the check has ended.
	requests []probe.Request

	mu       sync.Mutex
	failures []string   // guarded, like all fields below
	declared []Declared // in the order of their observation
	logs     []string
	skipped  string // the reason; "" if the check was not skipped
	cleanUps []func()
}

// try runs a check, and then its cleanup functions.
func try(ctx context.Context, name string, check func(t probe.T)) *trial {
	t, record := &trial{name: name}, &probe.Record{}
	ctx, cancel := context.WithCancel(record.With(ctx))
	defer cancel()
	t.ctx = ctx
	t.step(func() { check(t) })
	t.requests = record.Requests()
	cancel()
	for {
		t.mu.Lock()
		if len(t.cleanUps) == 0 {
			t.mu.Unlock()
			break
		}
		last := len(t.cleanUps) - 1
		next := t.cleanUps[last]
		t.cleanUps = t.cleanUps[:last]
		t.mu.Unlock()
		t.step(next)
	}
	return t
}

// step runs a function that may end its goroutine.
func (t *trial) step(do func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() {
			if r := recover(); r != nil {
				t.Errorf("the check panicked: %v\n%s", r, debug.Stack())
			}
		}()
		do()
	}()
	<-ended
}

// Helper does nothing: failures have no line numbers.
func (t *trial) Helper() {}

// Name returns the name of the check.
func (t *trial) Name() string { return t.name }

// Context returns the context of the check's requests.
func (t *trial) Context() context.Context { return t.ctx }

// Cleanup registers a function that is called when the check has ended, the last one first.
func (t *trial) Cleanup(cleanUp func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanUps = append(t.cleanUps, cleanUp)
}

func (t *trial) fail(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failures = append(t.failures, text)
}

// Error fails the check.
func (t *trial) Error(args ...any) { t.fail(fmt.Sprint(args...)) }

// Errorf fails the check.
func (t *trial) Errorf(format string, args ...any) { t.fail(fmt.Sprintf(format, args...)) }

// Fatal fails the check and ends it.
func (t *trial) Fatal(args ...any) {
	t.fail(fmt.Sprint(args...))
	runtime.Goexit()
}

// Fatalf fails the check and ends it.
func (t *trial) Fatalf(format string, args ...any) {
	t.fail(fmt.Sprintf(format, args...))
	runtime.Goexit()
}

// Logf keeps a message that may help to understand a failure.
func (t *trial) Logf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.logs = append(t.logs, fmt.Sprintf(format, args...))
}

// Skip ends the check without an outcome.
func (t *trial) Skip(args ...any) {
	t.mu.Lock()
	t.skipped = fmt.Sprint(args...)
	t.mu.Unlock()
	runtime.Goexit()
}

// Skipf ends the check without an outcome.
func (t *trial) Skipf(format string, args ...any) { t.Skip(fmt.Sprintf(format, args...)) }

// Failed reports whether the check has failed.
func (t *trial) Failed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.failures) > 0
}

// Declare records upstream's behaviour where it is accepted.
func (t *trial) Declare(d probe.Difference, seen string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.declared = append(t.declared, Declared{Rules: strings.Fields(d.Rules), Ours: d.Ours, Upstream: d.Upstream, Seen: seen})
}

// result returns the outcome.
func (t *trial) result(check Check) Result {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := Result{Name: check.Name, Rules: check.RuleCodes(), Outcome: Pass, Reason: t.skipped, Declared: t.declared}
	switch {
	case len(t.failures) > 0:
		r.Outcome, r.Failures, r.Log = Fail, slices.Clone(t.failures), t.logs
		r.Requests = t.requests
	case t.skipped != "":
		r.Outcome = Skipped
	case len(t.declared) > 0:
		r.Outcome = Accepted
	}
	return r
}
