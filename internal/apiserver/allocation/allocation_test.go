package allocation

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// first is a pick function that always starts at the low end.
func first(uint64) uint64 { return 0 }

func value(n uint64) string { return fmt.Sprintf("n/%d", n) }

// taken is a storage in which the given values belong to other objects.
func taken(values ...string) func(string) error {
	return func(v string) error {
		if slices.Contains(values, v) {
			return TakenError{Value: v, Holder: "/other"}
		}
		return nil
	}
}

func unexpectedList(t *testing.T) func() (iter.Seq[string], error) {
	return func() (iter.Seq[string], error) {
		t.Error("lists the values in use")
		return nil, errors.New("unexpected")
	}
}

func TestRunGuessesAgain(t *testing.T) {
	a, store := NewWithPick(first), taken("n/0", "n/1")
	var got uint64
	err := a.Run(func() error {
		got, _ = a.Find(0, 5, func(n uint64) bool { return !a.Taken(value(n)) })
		return store(value(got))
	}, unexpectedList(t))
	if err != nil || got != 2 {
		t.Errorf("found %d, %v; want 2", got, err)
	}
}

func TestRunListsAfterSomeGuesses(t *testing.T) {
	var values []string
	for n := range uint64(100) {
		values = append(values, value(n))
	}
	a, store := NewWithPick(first), taken(values...)
	writes := 0
	err := a.Run(func() error {
		writes++
		n, ok := a.Find(0, 100, func(n uint64) bool { return !a.Taken(value(n)) })
		if !ok {
			return errors.New("range is full")
		}
		return store(value(n))
	}, func() (iter.Seq[string], error) { return slices.Values(values), nil })
	if err == nil || err.Error() != "range is full" {
		t.Errorf("error %v, want range is full", err)
	}
	if writes != maxGuesses+1 {
		t.Errorf("%d writes, want %d", writes, maxGuesses+1)
	}
}

func TestRunRefusesARequestedValue(t *testing.T) {
	a, store := New(), taken("n/7")
	refusal := field.Invalid(field.NewPath("spec"), 7, "already allocated")
	err := a.Run(func() error {
		a.Request("n/7", refusal)
		return store("n/7")
	}, unexpectedList(t))
	if got, ok := errors.AsType[*field.Error](err); !ok || got != refusal {
		t.Errorf("error %v, want the refusal", err)
	}
	// A request in one attempt does not carry over to the next.
	attempts := 0
	err = a.Run(func() error {
		if attempts++; attempts == 1 {
			a.Request("n/7", refusal)
			return TakenError{Value: "n/8"}
		}
		return nil
	}, unexpectedList(t))
	if err != nil || attempts != 2 {
		t.Errorf("%d attempts, %v", attempts, err)
	}
}

// A storage that reports a value as taken although no object has it must not cause endless retries.
func TestRunEnds(t *testing.T) {
	a := New()
	stuck := TakenError{Value: "n/1", Holder: "/gone"}
	err := a.Run(func() error { return stuck }, func() (iter.Seq[string], error) { return slices.Values([]string{}), nil })
	if got, ok := errors.AsType[TakenError](err); !ok || got != stuck {
		t.Errorf("error %v, want %v", err, stuck)
	}
	listing := errors.New("no list")
	a = New()
	if err := a.Run(func() error { return stuck }, func() (iter.Seq[string], error) { return nil, listing }); !errors.Is(err, listing) {
		t.Errorf("error %v, want %v", err, listing)
	}
}

func TestFindInAnEmptyRange(t *testing.T) {
	if _, ok := New().Find(3, 3, func(uint64) bool { return true }); ok {
		t.Error("found a number where there is none")
	}
}
