package histories

import (
	"fmt"
	"math/bits"

	"pgregory.net/rapid"
)

// IntN draws a number from 0 to n-1, all with the same probability. It shrinks to 0.
//
// rapid's own integers, and therefore its SampledFrom, prefer small numbers: half of the events
// with a probability of some percent would hardly ever happen.
func IntN(t *rapid.T, n int) int {
	if n == 1 {
		return 0 // rapid wants a generator to use some of its randomness
	}
	return below(n).Draw(t, fmt.Sprint("number below ", n))
}

// Chance is true in the given percentage of cases. It shrinks to false.
func Chance(t *rapid.T, percent int) bool { return IntN(t, 100) >= 100-percent }

// From draws one of the values, all with the same probability. It shrinks to the first.
func From[T any](t *rapid.T, values ...T) T { return values[IntN(t, len(values))] }

func below(n int) *rapid.Generator[int] {
	return rapid.Custom(func(t *rapid.T) int {
		for {
			number := 0
			for range bits.Len(uint(n - 1)) {
				number <<= 1
				if rapid.Bool().Draw(t, "bit") {
					number++
				}
			}
			if number < n {
				return number
			}
		}
	})
}
