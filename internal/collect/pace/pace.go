// Package pace limits the number of concurrent requests to the capacity of the server, and to one a second
// while the server cannot be reached (reach.go).
//
// A client-side rate limit is a guess about a server that the client does not know, and it is wrong on
// every other server. Here the limit on requests under way goes up by one with each round trip that goes
// well and reaches it; it goes down by a fifth when answers take several times as long as usual, and by
// half when the server refuses a request (429). The arithmetic is in window.go and is pure.
//
// github.com/platinummonkey/go-concurrency-limits was read as the alternative. Its AIMD
// limit is lowered by every refusal, so that the refusals of one overload, which come
// together, take it down to 1 instead of by half; it grows with every answer instead of
// every round trip, has no upper bound, and does not look at latency. Its Gradient2 limit
// looks at nothing but latency. And its blocking limiter rejects callers when its backlog is
// full, and waits for a timeout where it should end with the caller's context.
package pace

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Patience is how long a request may wait for its answer before others no longer wait for it: it gives back its turn at
// the Limiter, and the worker that it keeps busy.
const Patience = time.Second

// Ending is how a request ended.
type Ending uint8

const (
	// Answered requests had an answer, or an error.
	Answered Ending = iota
	// Throttled requests were refused by the server (429).
	Throttled
	// Unsent requests were not sent: they say nothing about the server.
	Unsent
)

// Limiter bounds the requests under way. Those without an answer within Patience do not count, but for its most: a server
// may be slow as a whole. It is safe for concurrent use.
type Limiter struct {
	now func() time.Time

	mu       sync.Mutex
	window   window          // guarded by mu, and so is all below
	limit    int             // the last result of window
	underWay int             // requests that count, at most the limit at the time when the last one began
	lent     int             // requests that do not count any more
	overdue  []*turn         // requests whose turns are lent as soon as there are fewer of those
	queue    []chan struct{} // the waiting requests, first come first served; closed to let one begin
}

// New returns a limiter that allows start requests at first, and never more than most.
func New(start, most int, now func() time.Time) *Limiter {
	start = max(minLimit, min(start, most))
	return &Limiter{now: now, limit: start, window: window{limit: float64(start), max: float64(max(most, minLimit))}}
}

// Begin waits until a request may begin. The caller calls end once when the request has ended. If ctx ends while the
// request waits, Begin returns its error.
func (l *Limiter) Begin(ctx context.Context) (end func(Ending), err error) {
	if err := l.enter(ctx); err != nil {
		return nil, err
	}
	began := l.now()
	r := &turn{limiter: l}
	r.timer = time.AfterFunc(Patience, r.lend)
	return func(how Ending) { r.end(min(l.now().Sub(began), Patience), how) }, nil
}

// turn is the turn of one request.
type turn struct {
	limiter *Limiter
	timer   *time.Timer
	isLent  bool // guarded by limiter.mu, and so is hasEnded

	hasEnded bool
}

// lend lets another request begin before this one has ended: at once, or as soon as one of the many others that have let
// another one begin has ended.
func (t *turn) lend() {
	l := t.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.hasEnded {
		return
	}
	l.overdue = append(l.overdue, t)
	l.lendLocked()
	l.admitLocked()
}

// lendLocked lends the turns of overdue requests, as many as it may.
func (l *Limiter) lendLocked() {
	for len(l.overdue) > 0 && l.lent < int(l.window.max) {
		l.overdue[0].isLent = true
		l.lent++
		l.underWay--
		l.overdue = l.overdue[1:]
	}
}

// end ends the request. A latency above Patience counts as that: the answers of one kind that hangs do not make the limit of
// all lower and lower.
func (t *turn) end(latency time.Duration, how Ending) {
	t.timer.Stop()
	l := t.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	t.hasEnded = true
	if how != Unsent {
		l.limit = l.window.answer(latency, how == Throttled)
	}
	if t.isLent {
		l.lent--
		l.lendLocked()
	} else {
		l.underWay--
		l.overdue = slices.DeleteFunc(l.overdue, func(other *turn) bool { return other == t })
	}
	l.admitLocked()
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

// giveUp removes a request from the queue, or passes its turn on if it got one just now.
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

// admitLocked lets waiting requests begin, as many as the limit allows.
func (l *Limiter) admitLocked() {
	for l.underWay < l.limit && len(l.queue) > 0 {
		close(l.queue[0])
		l.queue = l.queue[1:]
		l.underWay++
	}
}

// Limit returns how many requests may be under way now.
func (l *Limiter) Limit() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.limit
}
