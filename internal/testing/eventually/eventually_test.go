package eventually_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// recorder is a test whose failure is looked at.
type recorder struct {
	testing.TB
	failure string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatalf(format string, args ...any) { r.failure = fmt.Sprintf(format, args...) }

func TestWaitsUntilItIsSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		after := func(n int) bool { calls++; return calls%n == 0 }
		eventually.Holds(t, "the third time", func() bool { return after(3) })
		eventually.Agrees(t, func() string {
			if after(4) {
				return ""
			}
			return "not the fourth time"
		})
		eventually.Succeeds(t, func() error {
			if after(5) {
				return nil
			}
			return errors.New("not the fifth time")
		})
		if calls != 5 {
			t.Errorf("asked %d times, want 5", calls)
		}
	})
}

func TestFailsWithTheLastAnswer(t *testing.T) {
	for name, wait := range map[string]func(t testing.TB){
		"Holds":    func(t testing.TB) { eventually.Holds(t, "the moon is green", func() bool { return false }) },
		"Agrees":   func(t testing.TB) { eventually.Agrees(t, func() string { return "the moon is green" }) },
		"Succeeds": func(t testing.TB) { eventually.Succeeds(t, func() error { return errors.New("the moon is green") }) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &recorder{TB: t}
				wait(r)
				if !strings.Contains(r.failure, "the moon is green") || !strings.Contains(r.failure, "3m0s") {
					t.Errorf("failed with %q", r.failure)
				}
			})
		})
	}
}

// A test that waits by running a program takes a part of a core only.
func TestPollsThatTakeLongAreRare(t *testing.T) {
	for took, want := range map[time.Duration]int{
		0:                      int(eventually.Patience / (50 * time.Millisecond)),
		100 * time.Millisecond: int(eventually.Patience / (400 * time.Millisecond)),
		10 * time.Second:       int(eventually.Patience / (11 * time.Second)),
	} {
		synctest.Test(t, func(t *testing.T) {
			polls := 0
			eventually.True(func() bool { polls++; time.Sleep(took); return false })
			if polls < want || polls > want+4 {
				t.Errorf("%d polls of %s, want %d or a few more", polls, took, want)
			}
		})
	}
}
