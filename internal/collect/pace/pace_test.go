package pace

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// feed gives a window the answers of a number of round trips; wanted means that a request had to
// wait in each.
func feed(w *window, roundTrips int, latency time.Duration, refused, wanted bool) {
	for range roundTrips {
		for size := int(w.limit); size > 0; size-- {
			w.full = wanted
			w.answer(latency, refused)
		}
	}
}

func TestGrowsByOneWithEachRoundTrip(t *testing.T) {
	w := window{limit: 10, max: 100}
	feed(&w, 5, time.Millisecond, false, true)
	if int(w.limit) != 15 {
		t.Errorf("limit %v after 5 round trips from 10", w.limit)
	}
	feed(&w, 500, time.Millisecond, false, true)
	if int(w.limit) != 100 {
		t.Errorf("limit %v, the most is 100", w.limit)
	}
}

func TestDoesNotGrowWhenNoRequestWaits(t *testing.T) {
	w := window{limit: 10, max: 100}
	feed(&w, 50, time.Millisecond, false, false)
	if int(w.limit) != 10 {
		t.Errorf("limit %v, although no request had to wait", w.limit)
	}
}

func TestHalvesOnceForEachRoundTripOfRefusals(t *testing.T) {
	w := window{limit: 64, max: 100}
	feed(&w, 1, time.Millisecond, true, true)
	if int(w.limit) != 32 {
		t.Errorf("limit %v after a round trip of refusals at 64", w.limit)
	}
	feed(&w, 50, time.Millisecond, true, true)
	if int(w.limit) != minLimit {
		t.Errorf("limit %v of a server that refuses all", w.limit)
	}
	feed(&w, 3, time.Millisecond, false, true)
	if int(w.limit) <= minLimit {
		t.Error("the limit does not recover")
	}
}

func TestGoesDownWhenSlow(t *testing.T) {
	w := window{limit: 50, max: 50}
	feed(&w, 10, 100*time.Millisecond, false, true)
	feed(&w, 1, 200*time.Millisecond, false, true)
	if int(w.limit) != 50 {
		t.Errorf("limit %v after a round trip that took twice as long", w.limit)
	}
	feed(&w, 4, 2*time.Second, false, true)
	if int(w.limit) > 30 {
		t.Errorf("limit %v after 4 round trips that took twenty times as long", w.limit)
	}
}

// Requests that are slow compared to a fast server's, but not slow in themselves, do not lower
// the limit.
func TestStaysBelowBearableLatency(t *testing.T) {
	w := window{limit: 50, max: 50}
	feed(&w, 10, time.Millisecond, false, true)
	feed(&w, 10, 50*time.Millisecond, false, true)
	if int(w.limit) != 50 {
		t.Errorf("limit %v of a server that answers in 50 ms", w.limit)
	}
}

func TestGetsUsedToASlowServer(t *testing.T) {
	w := window{limit: 50, max: 50}
	feed(&w, 10, 100*time.Millisecond, false, true)
	feed(&w, 300, 2*time.Second, false, true)
	if int(w.limit) < 40 {
		t.Errorf("limit %v of a server that is slow for good", w.limit)
	}
}

func TestBoundsWhatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(3, 3, time.Now)
		var mu sync.Mutex
		underWay, most := 0, 0
		for range 20 {
			go func() {
				end, err := l.Begin(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				underWay++
				most = max(most, underWay)
				mu.Unlock()
				time.Sleep(Patience / 2)
				mu.Lock()
				underWay--
				mu.Unlock()
				end(Answered)
			}()
		}
		synctest.Wait()
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if most != 3 || underWay != 0 {
			t.Errorf("at most %d were under way, want 3; %d still are", most, underWay)
		}
	})
}

func TestGivesUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(2, 2, time.Now)
		first, _ := l.Begin(t.Context())
		second, _ := l.Begin(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), Patience/2)
		defer cancel()
		if _, err := l.Begin(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
		first(Answered)
		second(Answered)
		// The request that gave up does not count.
		for range 2 {
			if _, err := l.Begin(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestRequestsThatHangKeepNoTurn checks that requests without an answer give their turns to others, and that these are
// bounded, too: a server may be slow as a whole. Answers that come late do not make the limit lower.
func TestRequestsThatHangKeepNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const start, most = 4, 8
		l := New(start, most, time.Now)
		var hanging []func(Ending)
		begin := func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), Patience+time.Millisecond)
			defer cancel()
			end, err := l.Begin(ctx)
			if err == nil {
				hanging = append(hanging, end)
			}
			return err == nil
		}
		for begin() {
			synctest.Wait()
		}
		if got := len(hanging); got != start+most {
			t.Errorf("%d requests that hang are under way, want %d", got, start+most)
		}
		// When one of those that gave up their turn has ended, another one gives it up.
		hanging[0](Answered)
		hanging = hanging[1:]
		if !begin() {
			t.Error("no request may begin after one of those that hung has ended")
		}
		for _, end := range hanging {
			end(Answered)
		}
		if l.underWay != 0 || l.lent != 0 || l.Limit() < start {
			t.Errorf("%d under way, %d lent, limit %d", l.underWay, l.lent, l.Limit())
		}
	})
}
