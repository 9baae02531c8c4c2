// Package probe is what a check of conformance does to an API server, and how it looks at the
// outcome.
//
// A check works in a [Space], a namespace of its own with a generated name. It creates objects
// there, deletes some, and states what has to become of the others: EventuallyGone, Stay,
// EventuallyOwned and so on. What takes a while is a condition with a deadline, the server's
// Patience ([Space.Until]); that nothing happens is asserted once a collector has provably dealt
// with everything from before ([Space.Settle]). Cluster-scoped objects carry the name of the
// namespace, and when the check ends all that it made is removed.
//
// Failures go to a [T]: testing's in test/conformance, or that of package conformance, which runs
// checks as a command. What upstream does differently is checked all the same, and declared
// ([Space.Differs]).
package probe

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// T is what a check reports to: a part of testing.TB. Fatal, Fatalf, Skip and Skipf end the
// goroutine that calls them.
type T interface {
	Helper()
	Name() string
	Context() context.Context
	Cleanup(cleanUp func())
	Error(args ...any)
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
	Skip(args ...any)
	Skipf(format string, args ...any)
	Failed() bool
}

const (
	// DefaultPatience is the time that a condition may take on a server without a Patience of its
	// own. It is far longer than anything should take.
	DefaultPatience = 3 * time.Minute
	// shortest and longest bound the time between two looks at a condition.
	shortest = 5 * time.Millisecond
	longest  = 100 * time.Millisecond
)

// Until waits until problem returns "". want says what is waited for, in the words of the failure:
// it follows "want", and what the last problem was follows that.
func (w *Space) Until(want string, problem func() string) {
	w.T.Helper()
	ctx, cancel := context.WithTimeout(w.T.Context(), w.patience())
	defer cancel()
	var last string
	looks := wait.Backoff{Duration: shortest, Factor: 2, Steps: 10, Cap: longest}.DelayFunc()
	err := looks.Until(ctx, true, true, func(context.Context) (bool, error) {
		last = problem()
		return last == "", nil
	})
	switch {
	case err == nil:
	case w.T.Context().Err() != nil:
		w.T.Fatalf("interrupted while waiting for this: want %s; so far: %s", want, last)
	default:
		w.T.Fatalf("want %s; after %s: %s", want, w.patience(), last)
	}
}

// patience is the time that a condition of this check may take.
func (w *Space) patience() time.Duration {
	switch {
	case w.hurry > 0:
		return w.hurry
	case w.Server.Patience > 0:
		return w.Server.Patience
	}
	return DefaultPatience
}
