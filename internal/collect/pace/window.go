package pace

import "time"

// The parameters of the control. The limit must go down faster than it goes up, and a single slow
// answer must not count as a slow server.
const (
	minLimit = 2
	// increase is added by a window without refusals or slow answers.
	increase = 1
	// throttled and slow are the factors after a refusal, and after a slow window.
	throttled, slow = 0.5, 0.8
	// tolerance is the multiple of its usual latency above which a server counts as slow; below
	// bearable it never does. Latency doubles by itself when there are twice as many requests under
	// way as the server has processors; a DELETE takes many times as long as a GET; and a store that
	// batches its writes takes less time per write when there are more writes. A server in trouble
	// takes seconds.
	tolerance = 4
	bearable  = 500 * time.Millisecond
	// ease is the weight of a window in the usual latency, so that a server that stays
	// slow does not count as slow for ever.
	ease = 0.05
)

// window computes from the answers of a server how many requests may be under way. It is
// pure: latencies are given to it, and a window ends after as many answers as the limit
// allows at a time, which is about one round trip.
type window struct {
	limit, max float64

	answers int
	size    int // the answers of the whole window: the limit that it began with
	total   time.Duration
	usual   time.Duration // 0: no window has ended yet
	// full is true if a request had to wait in this window. A limit that is not reached is not
	// raised.
	full bool
	// cut is true if the limit was halved in this window. Refusals of requests that were already
	// under way do not count again.
	cut bool
}

// answer adds one answer and returns the limit from now on.
func (w *window) answer(latency time.Duration, refused bool) int { //nolint:revive // flag-parameter: it is a measurement
	if w.answers == 0 {
		w.size = int(w.limit)
	}
	w.answers++
	w.total += latency
	if refused && !w.cut {
		w.limit, w.cut = max(minLimit, w.limit*throttled), true
	}
	if w.answers >= w.size {
		w.end()
	}
	return int(w.limit)
}

// end closes the window and begins the next.
func (w *window) end() {
	mean := w.total / time.Duration(w.answers)
	switch {
	case w.cut:
	case w.usual > 0 && mean > max(tolerance*w.usual, bearable):
		w.limit = max(minLimit, w.limit*slow)
	case w.full:
		w.limit = min(w.max, w.limit+increase)
	}
	if !w.cut {
		w.learn(mean)
	}
	w.answers, w.total, w.full, w.cut = 0, 0, false, false
}

// learn adapts the usual latency: down at once, up slowly.
func (w *window) learn(mean time.Duration) {
	if w.usual == 0 || mean < w.usual {
		w.usual = mean
		return
	}
	w.usual += time.Duration(ease * float64(mean-w.usual))
}
