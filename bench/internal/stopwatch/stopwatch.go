// Package stopwatch is the only place of the benchmark that reads the clock.
package stopwatch

import "time"

// Stopwatch measures the time since it was started.
type Stopwatch struct{ began time.Time }

// Start returns a running stopwatch.
func Start() Stopwatch {
	return Stopwatch{Now()}
}

// Elapsed returns the time since the start.
func (s Stopwatch) Elapsed() time.Duration { return Now().Sub(s.began) }

// Seconds returns the seconds since the start.
func (s Stopwatch) Seconds() float64 { return s.Elapsed().Seconds() }

// Rate returns n divided by the seconds since the start.
func (s Stopwatch) Rate(n int) float64 { return float64(n) / s.Seconds() }

// Now returns the current time.
func Now() time.Time {
	return time.Now()
}
