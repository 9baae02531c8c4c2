package collector

import (
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/coppice-dev/coppice/internal/collect/collector/barrier"
	"github.com/coppice-dev/coppice/internal/collect/collector/client"
)

// Next is the fate of a key after it was reconsidered.
type Next uint8

const (
	// Settled keys wait for an observation, or, if there is an error, for a place (places.go).
	Settled Next = iota
	// Retry keys come back after their back-off.
	Retry
	// Later keys come back after a time that the server or the barrier has named.
	Later
)

// Outcome is the result of one reconsideration.
type Outcome struct {
	Next  Next
	After time.Duration // for Later
	Err   error         // why it is not done
}

// outcomeOf is the one place where errors are classified.
func outcomeOf(err error) Outcome {
	if err == nil {
		return Outcome{Next: Settled}
	}
	if held, ok := errors.AsType[barrier.HeldError](err); ok {
		return Outcome{Next: Later, After: held.After, Err: err}
	}
	if unfinished, ok := errors.AsType[unfinishedError](err); ok {
		return Outcome{Next: Later, After: unfinished.after, Err: err}
	}
	if _, ok := errors.AsType[busyError](err); ok {
		return Outcome{Next: Later, After: busyDelay, Err: err}
	}
	if protected, ok := errors.AsType[protectedError](err); ok {
		return Outcome{Next: Later, After: protected.after, Err: err}
	}
	if refused, ok := errors.AsType[refusedError](err); ok && refused.after > 0 {
		return Outcome{Next: Later, After: refused.after, Err: err}
	}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok && seconds > 0 { // a server may suggest 0
		return Outcome{Next: Later, After: time.Duration(seconds) * time.Second, Err: err}
	}
	if hasNoPlace(err) {
		return Outcome{Next: Settled, Err: err}
	}
	return Outcome{Next: Retry, Err: err}
}

// hotError means that an object changed again and again between read and write. It does not wrap
// the last conflict: an owner that waits for this object must not be read again because of it.
type hotError struct{ ref client.Ref }

func (e hotError) Error() string {
	return fmt.Sprintf("%s changed %d times in a row before it could be written", e.ref, immediateTries)
}

// errNewEpoch means that the server's history has changed since the decision (R4).
var errNewEpoch = errors.New("the server's history has changed")

// errUnobserved means that an owner was read live, but has not been observed yet.
var errUnobserved = errors.New("owner exists but is not observed yet")
