// Package probe has the steps of a conformance check: requests to an API server, and assertions
// about the outcome.
//
// A check works in a [Space], a namespace of its own with a generated name. It creates objects
// there, deletes some, and asserts the fate of the others: EventuallyGone, Stay, EventuallyOwned
// and so on. To assert a change, it waits for a condition with a deadline, the server's Patience
// ([Space.Until]). To assert that nothing changes, it first waits until the collector has provably
// processed all earlier events ([Space.Settle]). Names of cluster-scoped objects contain the name
// of the namespace. When the check ends, its objects are removed.
//
// Failures go to a [T]: testing's in test/conformance, or the one of package conformance, which
// runs checks for a command. Checks also test the rules from which upstream differs, and declare
// the differences ([Space.Differs]).
package probe

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// T receives the failures of a check; it is a part of testing.TB. Fatal, Fatalf, Skip and Skipf end
// the goroutine that calls them.
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
	// DefaultPatience bounds the time of a condition on a server without a Patience of its own. It is
	// far longer than any condition should take.
	DefaultPatience = 3 * time.Minute
	// shortest and longest bound the time between two evaluations of a condition.
	shortest = 5 * time.Millisecond
	longest  = 100 * time.Millisecond
)

// Until waits until problem returns "". want names the condition: the message of a failure is
// "want", this text, and the last problem.
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

// patience returns the time that a condition of this check may take.
func (w *Space) patience() time.Duration {
	switch {
	case w.hurry > 0:
		return w.hurry
	case w.Server.Patience > 0:
		return w.Server.Patience
	}
	return DefaultPatience
}
