// Package pace finds out how many requests a server can take at a time.
//
// A client-side rate limit is a guess about a server that the client does not know,
// and it is wrong on every other server. Here the number of requests under way goes
// up by one with each round trip that goes well and finds the limit reached; it
// goes down by a fifth when answers take several times as long as usual, and by half when the
// server refuses (429). The arithmetic is in window.go and is pure.
package pace

import (
	"context"
	"sync"
	"time"
)

// Limiter bounds the requests under way. It is safe for concurrent use.
type Limiter struct {
	now func() time.Time

	mu       sync.Mutex
	window   window          // guarded by mu, and so is all below
	limit    int             // what window said last
	underWay int             // never more than limit was when the last one began
	queue    []chan struct{} // who waits, first come first; closed to let one begin
}

// New returns a limiter that begins at start requests and never allows more than most.
func New(start, most int, now func() time.Time) *Limiter {
	start = max(minLimit, min(start, most))
	return &Limiter{now: now, limit: start, window: window{limit: float64(start), max: float64(max(most, minLimit))}}
}

// Begin waits until a request may begin. The request's end is told by the function
// that it returns, exactly once; refused says that the server answered 429. The
// error is that of a context that has ended while waiting.
func (l *Limiter) Begin(ctx context.Context) (end func(refused bool), err error) {
	if err := l.enter(ctx); err != nil {
		return nil, err
	}
	began := l.now()
	return func(refused bool) { l.leave(l.now().Sub(began), refused) }, nil
}

func (l *Limiter) enter(ctx context.Context) error {
	l.mu.Lock()
	if l.underWay < l.limit && len(l.queue) == 0 {
		l.underWay++
		l.mu.Unlock()
		return nil
	}
	l.window.full = true
	turn := make(chan struct{})
	l.queue = append(l.queue, turn)
	l.mu.Unlock()

	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		return l.giveUp(ctx, turn)
	}
}

// giveUp takes a waiter out of the queue, or gives back the turn that came just now.
func (l *Limiter) giveUp(ctx context.Context, turn chan struct{}) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, waiting := range l.queue {
		if waiting == turn {
			l.queue = append(l.queue[:i], l.queue[i+1:]...)
			return ctx.Err()
		}
	}
	l.underWay--
	l.admitLocked()
	return ctx.Err()
}

func (l *Limiter) leave(latency time.Duration, refused bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limit = l.window.answer(latency, refused)
	l.underWay--
	l.admitLocked()
}

// admitLocked lets those begin for whom there is room.
func (l *Limiter) admitLocked() {
	for l.underWay < l.limit && len(l.queue) > 0 {
		close(l.queue[0])
		l.queue = l.queue[1:]
		l.underWay++
	}
}

// Limit is how many requests may be under way now.
func (l *Limiter) Limit() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.limit
}
