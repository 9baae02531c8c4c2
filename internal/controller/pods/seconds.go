package pods

import (
	"math"
	"time"
)

// Seconds returns a number of seconds from a spec as a duration. Users may ask for more than the 292 years that a duration
// can have: they get these, where a multiplication would overflow to a negative duration. A negative number is 0.
func Seconds(n int64) time.Duration {
	const most = int64(math.MaxInt64 / time.Second)
	return time.Duration(min(max(n, 0), most)) * time.Second
}
