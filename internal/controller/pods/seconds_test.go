package pods

import (
	"math"
	"testing"
	"time"
)

func TestSecondsDoNotOverflow(t *testing.T) {
	const years = 292 * 365 * 24 * time.Hour
	if got := Seconds(math.MaxInt64); got < years {
		t.Errorf("the most seconds are %s", got)
	}
	if got := []time.Duration{Seconds(math.MinInt64), Seconds(0), Seconds(90)}; got[0] != 0 || got[1] != 0 || got[2] != 90*time.Second {
		t.Errorf("%v", got)
	}
}
