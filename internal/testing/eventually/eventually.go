// Package eventually waits in tests for other goroutines or processes, and lets tests that wait do so side by side.
//
// Each function polls, at first every few milliseconds and later less often, so that many waiting
// tests do not keep a server busy. A poll that takes long, such as a run of kubectl, is made less often still: a test
// that waits leaves three quarters of a core to the others. It fails if the condition is not met within [Patience].
// Patience is far longer than any condition should take: it exists to report a hang, never to
// assert a speed. In a testing/synctest bubble the time is fake, and the wait costs nothing.
package eventually

import (
	"flag"
	"strconv"
	"testing"
	"time"
)

const (
	// Patience is the time that a condition may take before the test fails.
	Patience = 3 * time.Minute
	// shortest and longest bound the time between two polls that take no time.
	shortest = 5 * time.Millisecond
	longest  = 50 * time.Millisecond
	// share is the part of the time that polls take at most, once there were a few.
	share = 4
	// pause is the longest time between two polls, however long they take.
	pause = time.Second
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
	began := time.Now()
	for interval := shortest; ; interval *= 2 {
		asked := time.Now()
		if condition() {
			return true
		}
		now := time.Now()
		if now.Sub(began) > Patience {
			return false
		}
		took := now.Sub(asked)
		interval = min(max(interval, took), max(longest, min((share-1)*took, pause)))
		time.Sleep(interval)
	}
}

// SideBySide lets n parallel tests of a package run at the same time, whatever the number of processors: tests that wait
// need none. TestMain calls it before it runs the tests; a -parallel on the command line wins.
func SideBySide(n int) {
	if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
		panic(err) // only outside of tests
	}
}
