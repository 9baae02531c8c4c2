// Package allocation finds values that only one object of a resource may have, such as
// the cluster IP of a Service.
//
// The storage keeps them unique, in the transaction that writes the object. This package guesses a value,
// and guesses again when the storage returns that it is taken (TakenError). There is no allocator whose
// state could be wrong after a crash, and any number of servers may write to one store.
//
// A value is a string with a prefix for its kind, such as "clusterIP/10.96.0.1".
package allocation

import (
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// TakenError means that an object was not written because another object has one of its unique values.
type TakenError struct {
	Value string
	// Holder is the storage key of the other object.
	Holder string
}

// Error implements error.
func (e TakenError) Error() string { return fmt.Sprintf("%s is taken by %s", e.Value, e.Holder) }

// maxGuesses is the number of guesses before all values in use are listed.
const maxGuesses = 4

// Allocation is the state of one request that allocates values.
type Allocation struct {
	pick func(n uint64) uint64 // a random number below n
	// taken contains the values known to be in use; complete means that it contains all of them.
	taken    map[string]bool
	complete bool
	// requested maps each value that the client requested to the error to return if it is taken.
	requested map[string]*field.Error
}

// New returns an Allocation that knows of no value in use.
func New() *Allocation { return NewWithPick(rand.Uint64N) }

// NewWithPick returns an Allocation that calls pick for random numbers below n.
func NewWithPick(pick func(n uint64) uint64) *Allocation {
	return &Allocation{pick: pick, taken: map[string]bool{}, requested: map[string]*field.Error{}}
}

// Taken reports whether a value is known to be in use.
func (a *Allocation) Taken(value string) bool { return a.taken[value] }

// MarkTaken records that a value is in use.
func (a *Allocation) MarkTaken(value string) { a.taken[value] = true }

// Request records a value that the client requested, and the error to return if it is taken.
func (a *Allocation) Request(value string, taken *field.Error) { a.requested[value] = taken }

// Find returns a number in [low, high) for which free is true. It starts at a random one, so that
// concurrent allocations of different servers rarely collide.
func (a *Allocation) Find(low, high uint64, free func(uint64) bool) (uint64, bool) {
	if low >= high {
		return 0, false
	}
	n := high - low
	for i, start := uint64(0), a.pick(n); i < n; i++ {
		if number := low + (start+i)%n; free(number) {
			return number, true
		}
	}
	return 0, false
}

// Run calls write, which allocates on a fresh copy of the object and writes it, until no value is taken.
// After a few guesses it reads all values in use from inUse. The error is a *field.Error if a value that
// the client requested is taken.
func (a *Allocation) Run(write func() error, inUse func() (iter.Seq[string], error)) error {
	for guesses := 1; ; guesses++ {
		clear(a.requested)
		err := write()
		conflict, ok := errors.AsType[TakenError](err)
		if !ok {
			return err
		}
		if refusal := a.requested[conflict.Value]; refusal != nil {
			return refusal
		}
		if a.complete && a.taken[conflict.Value] {
			return fmt.Errorf("find free values: %w", err)
		}
		a.taken[conflict.Value] = true
		if guesses == maxGuesses {
			values, err := inUse()
			if err != nil {
				return err
			}
			for value := range values {
				a.taken[value] = true
			}
			a.complete = true
		}
	}
}
