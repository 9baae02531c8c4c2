package api

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
)

// entered takes seats in the background, and reports which users have one.
type entered struct {
	seats *seats

	mu    sync.Mutex
	has   map[string]int      // guarded by mu
	leave map[string][]func() // guarded by mu
}

func (e *entered) ask(ctx context.Context, user string) {
	go func() {
		leave, err := e.seats.take(ctx, user)
		if err != nil {
			return
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.has[user]++
		e.leave[user] = append(e.leave[user], leave)
	}()
	synctest.Wait()
}

func (e *entered) end(user string) {
	e.mu.Lock()
	leave := e.leave[user][0]
	e.leave[user] = e.leave[user][1:]
	e.mu.Unlock()
	leave()
	synctest.Wait()
}

// had returns the number of seats that a user has got.
func (e *entered) had(user string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.has[user]
}

func inBubble(t *testing.T, l limits, test func(t *testing.T, e *entered)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := &entered{seats: newSeats(l), has: map[string]int{}, leave: map[string][]func(){}}
		test(t, e)
		for _, user := range []string{"ada", "bob", "eve"} {
			for len(e.leave[user]) > 0 { // no other user is left
				e.end(user)
			}
		}
		if len(e.seats.users) > 0 || len(e.seats.turn) > 0 || e.seats.taken != 0 {
			t.Errorf("%d users, %d turns and %d seats are left", len(e.seats.users), len(e.seats.turn), e.seats.taken)
		}
	})
}

func TestUserHasItsOwnSeatsOnly(t *testing.T) {
	inBubble(t, limits{each: 2, all: 4, waiting: 2}, func(t *testing.T, e *entered) {
		for range 4 {
			e.ask(t.Context(), "eve")
		}
		e.ask(t.Context(), "ada")
		if e.had("eve") != 2 || e.had("ada") != 1 {
			t.Errorf("eve has %d seats and ada %d", e.had("eve"), e.had("ada"))
		}
		_, err := e.seats.take(t.Context(), "eve")
		if refused, ok := errors.AsType[*refusal](err); !ok || refused.code != http.StatusTooManyRequests {
			t.Errorf("the fifth request of eve: %v", err)
		}
		e.end("eve")
		e.end("eve")
		if e.had("eve") != 4 {
			t.Errorf("after two have left, eve had %d seats", e.had("eve"))
		}
	})
}

func TestUsersTakeTurns(t *testing.T) {
	inBubble(t, limits{each: 1, all: 1, waiting: 9}, func(t *testing.T, e *entered) {
		for range 5 {
			e.ask(t.Context(), "eve")
		}
		e.ask(t.Context(), "ada")
		e.end("eve")
		e.end("eve")
		if e.had("ada") != 1 {
			t.Error("ada waits for more than one request of eve")
		}
		e.end("ada")
		e.end("eve")
		e.end("eve")
	})
}

func TestWhoLeavesHasNoTurn(t *testing.T) {
	inBubble(t, limits{each: 1, all: 1, waiting: 9}, func(t *testing.T, e *entered) {
		e.ask(t.Context(), "ada")
		ctx, cancel := context.WithCancel(t.Context())
		e.ask(ctx, "eve")
		e.ask(ctx, "eve")
		e.ask(t.Context(), "bob")
		cancel()
		synctest.Wait()
		e.end("ada")
		if e.had("bob") != 1 || e.had("eve") != 0 {
			t.Errorf("bob has %d seats and eve %d", e.had("bob"), e.had("eve"))
		}
	})
}
