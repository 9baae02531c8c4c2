package simulated_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/coppice-dev/coppice/internal/node/agent/containerruntime/simulated"
)

// TestTimersFireWhenTimePassesOrIsMoved checks that timers fire when their time has come, whether time passes or is moved.
func TestTimersFireWhenTimePassesOrIsMoved(t *testing.T) {
	for _, test := range []struct {
		name          string
		advance, pass time.Duration
		fires         bool
	}{
		{"nothing moves", 0, 29 * time.Second, false},
		{"time passes", 0, 30 * time.Second, true},
		{"the clock is moved", 30 * time.Second, 0, true},
		{"some of both", 20 * time.Second, 10 * time.Second, true},
		{"not enough of both", 20 * time.Second, 9 * time.Second, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := simulated.NewClock()
				began := c.Now()
				timer, stopped := c.NewTimer(30*time.Second), c.NewTimer(30*time.Second)
				stopped.Stop()
				called := false
				c.AfterFunc(30*time.Second, func() { called = true })
				c.Advance(test.advance)
				time.Sleep(test.pass) // of the bubble
				synctest.Wait()
				fired := len(timer.C()) == 1
				if fired != test.fires || called != test.fires || len(stopped.C()) != 0 {
					t.Errorf("timer fired: %v, function called: %v, stopped timer fired: %v; want %v", fired, called, len(stopped.C()), test.fires)
				}
				if got, want := c.Since(began), test.advance+test.pass; got != want {
					t.Errorf("%v have passed, want %v", got, want)
				}
			})
		})
	}
}

// TestResetTimerStartsOver checks that a reset timer starts over.
func TestResetTimerStartsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := simulated.NewClock()
		timer := c.NewTimer(time.Second)
		c.Advance(time.Second)
		<-timer.C()
		timer.Reset(time.Minute)
		c.Advance(59 * time.Second)
		synctest.Wait()
		if len(timer.C()) != 0 {
			t.Error("fired before its time")
		}
		c.Advance(time.Second)
		<-timer.C()
	})
}
