// Package eventually waits in tests for other goroutines or processes.
//
// Each function polls, at first every few milliseconds and later less often, so that many waiting
// tests do not keep a server busy; it fails the test if the condition is not met within [Patience].
// Patience is far longer than any condition should take: it exists to report a hang, never to
// assert a speed. In a testing/synctest bubble the time is fake, and the wait costs nothing.
package eventually

import (
	"testing"
	"time"
)

const (
	// Patience is the time that a condition may take before the test fails.
	Patience = 3 * time.Minute
	// shortest and longest bound the time between two polls.
	shortest = 5 * time.Millisecond
	longest  = 50 * time.Millisecond
)

// Succeeds waits until check returns nil, and fails the test with the last error otherwise.
func Succeeds(t testing.TB, check func() error) {
	t.Helper()
	var err error
	if !True(func() bool { err = check(); return err == nil }) {
		t.Fatalf("after %s: %v", Patience, err)
	}
}

// Agrees waits until check returns "", and fails the test with the last problem otherwise.
func Agrees(t testing.TB, check func() (problem string)) {
	t.Helper()
	var problem string
	if !True(func() bool { problem = check(); return problem == "" }) {
		t.Fatalf("after %s: %s", Patience, problem)
	}
}

// Holds waits until condition is true; what names the condition in the failure.
func Holds(t testing.TB, what string, condition func() bool) {
	t.Helper()
	if !True(condition) {
		t.Fatalf("after %s: not yet: %s", Patience, what)
	}
}

// True reports whether a condition becomes true, for callers that have no test to fail, as TestMain.
func True(condition func() bool) bool {
	deadline := time.Now().Add(Patience)
	for interval := shortest; !condition(); interval = min(2*interval, longest) {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(interval)
	}
	return true
}
