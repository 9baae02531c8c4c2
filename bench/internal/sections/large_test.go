package sections

import (
	"math"
	"testing"
)

// TestExponent: powers have their exponent, and a constant part lowers it.
func TestExponent(t *testing.T) {
	sizes := []float64{1e4, 1e5, 1e6, 1e7}
	for _, want := range []float64{0, 0.5, 1, 2} {
		var values []float64
		for _, n := range sizes {
			values = append(values, 3*math.Pow(n, want))
		}
		if got := exponent(sizes, values); math.Abs(got-want) > 1e-9 {
			t.Errorf("the exponent of 3·n^%g is %g", want, got)
		}
	}
	var values []float64
	for _, n := range sizes {
		values = append(values, 1e6+n)
	}
	if got := exponent(sizes, values); got <= 0 || got >= 1 {
		t.Errorf("the exponent of 10⁶ + n is %g, want between 0 and 1", got)
	}
}

// TestTooManyObjectsAreRefused: the memory of a number is expected to grow with it.
func TestTooManyObjectsAreRefused(t *testing.T) {
	costs := []cost{{objects: 1000, peak: 1}}
	if err := fits(costs, 1000); err != nil {
		t.Errorf("1 MB: %v", err)
	}
	if err := fits(costs, 1_000_000_000_000); err == nil {
		t.Error("1 PB is said to be free")
	}
}
