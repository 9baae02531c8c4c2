package protection

import (
	"strconv"
	"testing"
	"time"
)

func TestRefusedVersionIsHeldForAMinute(t *testing.T) {
	start := time.Unix(1000, 0)
	h := Held{}.Refuse("1", "no", start)
	for _, test := range []struct {
		version string
		after   time.Duration
		want    time.Duration
	}{
		{"1", 0, time.Minute},
		{"1", 20 * time.Second, 40 * time.Second},
		{"1", time.Minute, 0},
		{"1", time.Hour, 0},
		{"2", 0, 0}, // it has changed
	} {
		if got := h.Wait(test.version, start.Add(test.after)); got != test.want {
			t.Errorf("version %s after %s: %s, want %s", test.version, test.after, got, test.want)
		}
	}
	// The deletion of an object that changes every second is tried a few times, and then once a minute.
	tries := map[time.Duration]int{}
	for after := range 10 * time.Minute / time.Second {
		now, version := start.Add(after*time.Second), strconv.Itoa(int(after))
		if h.Wait(version, now) == 0 {
			h = h.Refuse(version, "no", now)
			tries[after*time.Second/time.Minute]++
		}
	}
	for minute, n := range tries {
		if limit := map[time.Duration]int{0: 7, 1: 2}[minute]; n > max(1, limit) {
			t.Errorf("minute %d: %d tries", minute, n)
		}
	}
	if len(tries) < 9 {
		t.Errorf("it was tried in %d of 10 minutes only", len(tries))
	}
}
