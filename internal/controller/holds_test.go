package controller

import (
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
)

// A status waits once for the whole hold, whatever comes meanwhile, and a shorter hold ends the wait.
func TestStatusWaitsOnce(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	h, owner := NewHolds(clock), cache.NewObjectName("ns", "web")
	for _, step := range []struct{ after, most, want time.Duration }{
		{0, time.Second, time.Second},
		{600 * time.Millisecond, time.Second, 400 * time.Millisecond},
		{0, 0, 0}, // written at once
		{400 * time.Millisecond, time.Second, 0},
		{time.Second, 10 * time.Second, 8 * time.Second},
	} {
		clock.SetTime(clock.Now().Add(step.after))
		if got := h.Remaining(owner, step.most); got != step.want {
			t.Errorf("it waits for %s, not %s", got, step.want)
		}
	}
	h.End(owner)
	if got := h.Remaining(owner, time.Second); got != time.Second || len(h.since) != 1 {
		t.Errorf("after the end of a hold, it waits for %s", got)
	}
	if h.End(owner); len(h.since) != 0 {
		t.Errorf("%d owners are kept", len(h.since))
	}
}

func TestSooner(t *testing.T) {
	for _, c := range [][3]time.Duration{{0, 0, 0}, {1, 0, 1}, {0, 2, 2}, {1, 2, 1}, {3, 2, 2}} {
		if got := Sooner(c[0], c[1]); got != c[2] {
			t.Errorf("Sooner(%d, %d) = %d", c[0], c[1], got)
		}
	}
}
