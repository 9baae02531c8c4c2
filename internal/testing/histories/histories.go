// Package histories checks state machines against random histories, with pgregory.net/rapid: it draws
// them, prints the seed of a failed one, shrinks it and writes a file that replays it
// (-rapid.failfile). Check runs them; IntN, Chance and From draw with even probabilities, Choices
// prefers simple values.
package histories

import (
	"flag"
	"fmt"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// Check runs the given number of histories, in which Repeat takes the given number of steps on
// average. -rapid.checks and -rapid.steps on the command line override these.
func Check(t *testing.T, histories, steps int, history func(*rapid.T)) {
	t.Helper()
	check(t, map[string]int{"rapid.checks": histories, "rapid.steps": steps}, history)
}

// CheckSame is Check with the same histories each time, for properties that are likely but not certain.
// -rapid.seed overrides the seed.
func CheckSame(t *testing.T, seed, histories, steps int, history func(*rapid.T)) {
	t.Helper()
	check(t, map[string]int{"rapid.seed": seed, "rapid.checks": histories, "rapid.steps": steps}, history)
}

func check(t *testing.T, flags map[string]int, history func(*rapid.T)) {
	t.Helper()
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for name, value := range flags {
		f := flag.Lookup(name)
		if before := f.Value.String(); !given[name] {
			set(t, f, strconv.Itoa(value))
			defer set(t, f, before)
		}
	}
	rapid.Check(t, history)
}

// set sets a flag without marking it as given on the command line.
func set(t *testing.T, f *flag.Flag, value string) {
	t.Helper()
	if err := f.Value.Set(value); err != nil {
		t.Fatal(err)
	}
}

// Action is an action with its weight relative to the others.
type Action struct {
	Weight int
	Do     func(*rapid.T)
}

// Actions returns actions for Repeat, each as often as its weight. check is called after each action.
// Shrinking prefers the first actions in the order of names.
func Actions(check func(*rapid.T), actions map[string]Action) map[string]func(*rapid.T) {
	all := map[string]func(*rapid.T){"": check}
	for name, action := range actions {
		for i := range action.Weight {
			all[fmt.Sprintf("%s/%d", name, i)] = action.Do
		}
	}
	return all
}

// Choose returns a number from 0 to n-1; n is positive.
type Choose func(n int) int

// Choices draws numbers. Smaller numbers are simpler.
func Choices(t *rapid.T) Choose {
	return func(n int) int {
		if n == 1 {
			return 0
		}
		return rapid.IntRange(0, n-1).Draw(t, "choice")
	}
}
